"""The program that joins a machine to a pool and follows its instructions.

The program uses only the standard library.

BERTH_URL=https://berth.example.org BERTH_POOL=metal BERTH_JOIN_TOKEN=join_... python3 program.py

The program measures the machine and joins the pool. Every few seconds, it reports that the machine is running
and whether EC2 is about to interrupt the machine. The response names the node that the machine should serve
as, and contains a shell script that turns the machine into this node and a script that undoes this. Both
scripts run as the user who runs this program. Each report includes the first script's exit code and last
output.

The program requires Python 3.9 or later.

Certificates are verified, against the file BERTH_CA if it is set. Plain HTTP is allowed only to this machine,
unless BERTH_PLAIN_HTTP=1 declares the network trusted: a forged response could run any command here.
"""

import hashlib
import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid

REPORT_INTERVAL_SECONDS = 5.0
TIMEOUT = 20.0
METADATA = os.environ.get("BERTH_METADATA_URL", "http://169.254.169.254")
URL = os.environ.get("BERTH_URL", "").rstrip("/")
POOL = os.environ.get("BERTH_POOL", "")
STATE = os.environ.get("BERTH_MACHINE_STATE", "/var/lib/berth-machine")


class MachineRejected(Exception):
    """Raised if the server does not know this machine."""


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Reject redirects, because they would send the machine's secret to another server."""

    def redirect_request(self, *arguments):
        # type: (object) -> None
        return None


def main():
    # type: () -> int
    if not is_safe(URL):
        print("BERTH_URL is not https:// (BERTH_PLAIN_HTTP=1 allows plain HTTP)", file=sys.stderr)
        return 2
    ec2_instance_id = get_metadata("instance-id")
    secret = load_secret() or join_pool(ec2_instance_id)
    boot, start = EnvironmentScript(), StartScript()
    while True:
        try:
            body = {"interruption": detect_interruption() if ec2_instance_id else None}  # type: dict[str, object]
            body.update(booted=boot.report(), started=start.report())
            answer = send("machines/call", body, secret)
            boot.follow(answer)
            start.follow(answer)
        except MachineRejected as refusal:
            start.follow({})
            print("refused: %s" % refusal, file=sys.stderr)
            return 1
        except OSError as error:
            print("no response: %s" % error, file=sys.stderr)
        time.sleep(REPORT_INTERVAL_SECONDS)


class EnvironmentScript:
    """Script that installs a node's environment. Each report includes the script's progress."""

    def __init__(self):
        # type: () -> None
        self.digest, self.process = "", None  # type: str, subprocess.Popen[bytes] | None
        self.directory = os.path.join(STATE, "boot")

    def follow(self, answer):
        # type: (dict[str, object]) -> None
        """Start the script once per environment. Stop a script that is no longer requested."""
        digest = str(answer.get("digest") or "")
        if digest == self.digest:
            return
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, 9)
        self.digest, self.process = digest, None
        if not digest:
            return
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        for name, text in (("script", str(answer["prepare"])), ("phases", "")):
            with open(os.path.join(self.directory, name), "w") as file:
                file.write(text)
        env = dict(
            os.environ,
            BERTH_ENVIRONMENTS=os.path.join(STATE, "environments"),
            BERTH_PHASES=os.path.join(self.directory, "phases"),
            BERTH_CODE=URL + "/api/v1/machines/worker.tar",
        )
        secrets = answer.get("secrets") or {}
        if isinstance(secrets, dict):
            env.update(secrets)
        with open(os.path.join(self.directory, "output"), "wb") as output:
            self.process = subprocess.Popen(
                ["/bin/sh", os.path.join(self.directory, "script")], env=env, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def report(self):
        # type: () -> dict[str, object] | None
        if self.process is None:
            return None
        # poll before reading the phases: they are complete once the script has ended
        code = self.process.poll()
        with open(os.path.join(self.directory, "phases"), "rb") as file:
            phases = parse_phases(file.read().decode("utf-8", "replace"))
        output = last_output(os.path.join(self.directory, "output"))
        return {"digest": self.digest, "phases": phases, "exit_code": code, "output": output}


class StartScript:
    """Script that turns the machine into a node. It runs in the background, because it may take minutes."""

    def __init__(self):
        # type: () -> None
        self.answer = {}  # type: dict[str, object]
        self.process = None  # type: subprocess.Popen[bytes] | None
        self.began = 0.0
        self.seconds = 0
        self.output = os.path.join(STATE, "start.output")

    def follow(self, answer):
        # type: (dict[str, object]) -> None
        """Stop the previous node and start the current one if the instructions have changed."""
        if all(self.answer.get(name) == answer.get(name) for name in ("instance", "node", "start")):
            self.answer = answer
            return
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        if self.answer.get("stop"):
            stop = subprocess.run(command(self.answer, "stop"), env=script_env(self.answer), check=False)
            print("%s: stop script exited with %d" % (self.answer["node"], stop.returncode), file=sys.stderr)
        self.answer, self.process = answer, None
        if answer.get("start"):
            self.begin()

    def begin(self):
        # type: () -> None
        self.began = time.monotonic()
        os.makedirs(STATE, mode=0o700, exist_ok=True)
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                command(self.answer, "start"), env=script_env(self.answer), stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def report(self):
        # type: () -> dict[str, object] | None
        """Return the script's progress, or None if there is no script or no instance."""
        if self.process is None or not self.answer.get("instance"):
            return None
        running = self.process.returncode is None
        code = self.process.poll()
        if running:
            self.seconds = int(time.monotonic() - self.began)
            if code is not None:
                print("%s: start script exited with %d" % (self.answer["node"], code), file=sys.stderr)
        return {
            "instance": self.answer["instance"], "exit_code": code, "seconds": self.seconds,
            "output": last_output(self.output),
        }  # fmt: skip


def command(answer, name):
    # type: (dict[str, object], str) -> list[str]
    """Return a command that reads the script from a private file. All users can see command lines."""
    return ["/bin/sh", write_private_file(name + ".sh", str(answer[name]))]


def script_env(answer):
    # type: (dict[str, object]) -> dict[str, str]
    return dict(os.environ, BERTH_NODE=str(answer["node"]), BERTH_ORDINAL=str(answer["ordinal"]))


def last_output(path):
    # type: (str) -> str
    with open(path, "rb") as file:
        file.seek(max(file.seek(0, 2) - 16000, 0))
        return strip_unprintable(file.read().decode("utf-8", "replace"))


def parse_phases(lines):
    # type: (str) -> list[dict[str, object]]
    """Return the latest state of each phase. Incomplete lines are ignored."""
    phases = {}  # type: dict[str, dict[str, object]]
    for line in lines.splitlines():
        try:
            phase = json.loads(line)
            phase["message"] = strip_unprintable(phase["message"])
            if phase["phase"] != "ready":
                phases[phase["phase"]] = phase
        except (ValueError, KeyError, TypeError):
            pass
    return list(phases.values())[:64]


def strip_unprintable(text):
    # type: (str) -> str
    return "".join(char for char in text if char.isprintable() or char in "\n\t")[-4000:]


def join_pool(ec2_instance_id):
    # type: (str) -> str
    token = os.environ.pop("BERTH_JOIN_TOKEN", "")
    while True:
        try:
            body = measure(ec2_instance_id)  # fails until the server's host name can be resolved
            body["token"] = token
            answer = send("node-pools/%s/join" % POOL, body)
            return store_secret(str(answer["secret"]))
        except OSError as error:
            # for example a conflict: the machine may boot before Berth has recorded its order
            print("not joined yet: %s" % error, file=sys.stderr)
            time.sleep(REPORT_INTERVAL_SECONDS)


def measure(ec2_instance_id):
    # type: (str) -> dict[str, object]
    gpus = [line.split(", ") for line in query_nvidia_smi().splitlines() if line.strip()]
    return {
        "name": socket.gethostname().split(".")[0],
        "address": get_metadata("local-ipv4") if ec2_instance_id else own_address(),
        "instance_id": ec2_instance_id,
        "cpu": float(len(os.sched_getaffinity(0))),
        "memory_mib": memory_mib(),
        "devices": [gpu[0] for gpu in gpus],
        "gpu_model": gpus[0][1].replace("NVIDIA ", "") if gpus else "",
        "machine_id": machine_id(),
    }


def machine_id():
    # type: () -> str
    """Return an ID that survives reboots and, if the firmware has one, a new installation."""
    stored = read_file(os.path.join(STATE, "machine-id"))
    if stored:
        return stored
    firmware = read_file("/sys/class/dmi/id/product_uuid").lower()  # only root may read it
    is_placeholder = len(set(firmware) - {"-"}) < 4 or firmware.startswith("03000200-0400")
    source = read_file("/etc/machine-id") if is_placeholder else firmware
    digest = hashlib.sha256(("berth machine " + (source or uuid.uuid4().hex)).encode()).hexdigest()[:32]
    write_private_file("machine-id", digest)
    return digest


def read_file(path):
    # type: (str) -> str
    """Return the stripped text of a file, or an empty string if it cannot be read."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def query_nvidia_smi():
    # type: () -> str
    query = ["nvidia-smi", "--query-gpu=uuid,name", "--format=csv,noheader"]
    try:
        return subprocess.run(query, stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
    except (OSError, subprocess.SubprocessError):
        return ""


def memory_mib():
    # type: () -> int
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("MemTotal:"))


def own_address():
    # type: () -> str
    """Return the address from which this machine reaches the server."""
    host = URL.split("://")[1].split("/")[0].rsplit(":", 1)[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # connecting a UDP socket sends nothing
        return str(probe.getsockname()[0])


def get_metadata(path):
    # type: (str) -> str
    """Return a value from EC2's metadata service (IMDSv2), or an empty string."""
    ttl_header = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    try:
        request = urllib.request.Request(METADATA + "/latest/api/token", method="PUT", headers=ttl_header)
        token = urllib.request.urlopen(request, timeout=2).read().decode()
        headers = {"X-aws-ec2-metadata-token": token}
        request = urllib.request.Request(METADATA + "/latest/meta-data/" + path, headers=headers)
        return str(urllib.request.urlopen(request, timeout=2).read().decode())
    except OSError:
        return ""


def detect_interruption():
    # type: () -> dict[str, object] | None
    action = get_metadata("spot/instance-action")
    if action:
        return {"reason": "EC2 will interrupt this spot instance", "at": json.loads(action)["time"]}
    if get_metadata("events/recommendations/rebalance"):
        return {"reason": "EC2 recommends rebalancing this spot instance", "at": None}
    return None


def send(path, body, secret=""):
    # type: (str, dict[str, object], str) -> dict[str, object]
    headers = {"Content-Type": "application/json"}
    if secret:
        headers["Authorization"] = "Bearer " + secret
    data = json.dumps(body).encode()
    request = urllib.request.Request(URL + "/api/v1/" + path, data=data, headers=headers, method="POST")
    try:
        return json.load(make_opener().open(request, timeout=TIMEOUT))
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")[:500]
        if error.code in (401, 404, 422):
            raise MachineRejected(text)
        raise OSError("%d: %s" % (error.code, text))


def is_safe(url):
    # type: (str) -> bool
    scheme, _, rest = url.partition("://")
    host = rest.split("/")[0].rpartition("@")[2].rsplit(":", 1)[0]
    is_local = host in ("localhost", "[::1]") or (host[:4] == "127." and host.replace(".", "").isdigit())
    return scheme == "https" or (scheme == "http" and (is_local or os.environ.get("BERTH_PLAIN_HTTP") == "1"))


def make_opener():
    # type: () -> urllib.request.OpenerDirector
    context = ssl.create_default_context(cafile=os.environ.get("BERTH_CA") or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), NoRedirects)


def load_secret():
    # type: () -> str
    return read_file(os.path.join(STATE, "secret"))


def store_secret(secret):
    # type: (str) -> str
    write_private_file("secret", secret)
    return secret


def write_private_file(name, text):
    # type: (str, str) -> str
    """Write a file that only its owner can read. Return the file's path."""
    os.makedirs(STATE, mode=0o700, exist_ok=True)
    path = os.path.join(STATE, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    return path


if __name__ == "__main__":
    sys.exit(main())
