"""The program that joins a machine to a pool and follows its instructions.

It uses only the standard library.

BERTH_URL=https://berth.example.org BERTH_POOL=metal BERTH_JOIN_TOKEN=join_... python3 program.py

It measures the machine and joins the pool. Every few seconds it reports that the machine is running and
whether EC2 is about to interrupt it, and fetches the machine's node. The response contains a shell script
that makes the machine this node, and a script that undoes this. Both run as the user who runs this program.
Each call reports the first script's exit code and last output.

It requires Python 3.9 or later.

Certificates are verified, against the file BERTH_CA if set. Plain HTTP is allowed only on this machine,
unless BERTH_PLAIN_HTTP=1 declares the network trusted: a forged response could run any command here.
"""

import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

EVERY_SECONDS = 5.0
TIMEOUT = 20.0
METADATA = os.environ.get("BERTH_METADATA_URL", "http://169.254.169.254")
URL = os.environ.get("BERTH_URL", "").rstrip("/")
POOL = os.environ.get("BERTH_POOL", "")
STATE = os.environ.get("BERTH_MACHINE_STATE", "/var/lib/berth-machine")


class Refused(Exception):
    """The server does not know this machine."""


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Reject redirects: they would send the machine's secret to another server."""

    def redirect_request(self, *arguments):
        # type: (object) -> None
        return None


def main():
    # type: () -> int
    if not is_safe(URL):
        print("BERTH_URL is not https:// (BERTH_PLAIN_HTTP=1 allows it)", file=sys.stderr)
        return 2
    on_ec2 = metadata("instance-id")
    secret = stored_secret() or joined(on_ec2)
    boot, start = Boot(), Start()
    while True:
        try:
            body = {"interruption": interruption() if on_ec2 else None}  # type: dict[str, object]
            body.update(booted=boot.report(), started=start.report())
            answer = send("machines/call", body, secret)
            boot.follow(answer)
            start.follow(answer)
        except Refused as refusal:
            start.follow({})
            print("refused: %s" % refusal, file=sys.stderr)
            return 1
        except OSError as error:
            print("no response: %s" % error, file=sys.stderr)
        time.sleep(EVERY_SECONDS)


class Boot:
    """The script that installs a node's environment. Calls report its progress in the meantime."""

    def __init__(self):
        # type: () -> None
        self.digest, self.process = "", None  # type: str, subprocess.Popen[bytes] | None
        self.place = os.path.join(STATE, "boot")

    def follow(self, answer):
        # type: (dict[str, object]) -> None
        """Start the script once per environment; stop a script that is no longer requested."""
        digest = str(answer.get("digest") or "")
        if digest == self.digest:
            return
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, 9)
        self.digest, self.process = digest, None
        if not digest:
            return
        os.makedirs(self.place, mode=0o700, exist_ok=True)
        for name, text in (("script", str(answer["prepare"])), ("phases", "")):
            with open(os.path.join(self.place, name), "w") as file:
                file.write(text)
        env = dict(
            os.environ,
            BERTH_ENVIRONMENTS=os.path.join(STATE, "environments"),
            BERTH_PHASES=os.path.join(self.place, "phases"),
            BERTH_CODE=URL + "/api/v1/machines/worker.tar",
        )
        secrets = answer.get("secrets") or {}
        if isinstance(secrets, dict):
            env.update(secrets)
        with open(os.path.join(self.place, "output"), "wb") as output:
            self.process = subprocess.Popen(
                ["/bin/sh", os.path.join(self.place, "script")], env=env, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def report(self):
        # type: () -> dict[str, object] | None
        if self.process is None:
            return None
        code = self.process.poll()  # read before the phases, so that an ended script's are complete
        with open(os.path.join(self.place, "phases"), "rb") as file:
            phases = phases_in(file.read().decode("utf-8", "replace"))
        output = last_output(os.path.join(self.place, "output"))
        return {"digest": self.digest, "phases": phases, "exit_code": code, "output": output}


class Start:
    """The script that makes the machine a node. It runs in the background because it may take minutes."""

    def __init__(self):
        # type: () -> None
        self.answer = {}  # type: dict[str, object]
        self.process = None  # type: subprocess.Popen[bytes] | None
        self.began = 0.0
        self.seconds = 0
        self.output = os.path.join(STATE, "start.output")

    def follow(self, answer):
        # type: (dict[str, object]) -> None
        """Stop the former node and start the current one if the instructions have changed."""
        if all(self.answer.get(name) == answer.get(name) for name in ("instance", "node", "start")):
            self.answer = answer
            return
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        if self.answer.get("stop"):
            stop = subprocess.run(command(self.answer, "stop"), env=env_of(self.answer), check=False)
            print("%s: stop ended with %d" % (self.answer["node"], stop.returncode), file=sys.stderr)
        self.answer, self.process = answer, None
        if answer.get("start"):
            self.begin()

    def begin(self):
        # type: () -> None
        self.began = time.monotonic()
        os.makedirs(STATE, mode=0o700, exist_ok=True)
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                command(self.answer, "start"), env=env_of(self.answer), stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def report(self):
        # type: () -> dict[str, object] | None
        """Return the script's progress; None without a script or an instance."""
        if self.process is None or not self.answer.get("instance"):
            return None
        running = self.process.returncode is None
        code = self.process.poll()
        if running:
            self.seconds = int(time.monotonic() - self.began)
            if code is not None:
                print("%s: start ended with %d" % (self.answer["node"], code), file=sys.stderr)
        return {
            "instance": self.answer["instance"], "exit_code": code, "seconds": self.seconds,
            "output": last_output(self.output),
        }  # fmt: skip


def command(answer, name):
    # type: (dict[str, object], str) -> list[str]
    """Return a command that reads the script from a private file: other users can see command lines."""
    return ["/bin/sh", write_private(name + ".sh", str(answer[name]))]


def env_of(answer):
    # type: (dict[str, object]) -> dict[str, str]
    return dict(os.environ, BERTH_NODE=str(answer["node"]), BERTH_ORDINAL=str(answer["ordinal"]))


def last_output(path):
    # type: (str) -> str
    with open(path, "rb") as file:
        file.seek(max(file.seek(0, 2) - 16000, 0))
        return printable(file.read().decode("utf-8", "replace"))


def phases_in(lines):
    # type: (str) -> list[dict[str, object]]
    """Parse the latest state of each phase; ignore incomplete lines."""
    phases = {}  # type: dict[str, dict[str, object]]
    for line in lines.splitlines():
        try:
            phase = json.loads(line)
            phase["message"] = printable(phase["message"])
            if phase["phase"] != "ready":
                phases[phase["phase"]] = phase
        except (ValueError, KeyError, TypeError):
            pass
    return list(phases.values())[:64]


def printable(text):
    # type: (str) -> str
    return "".join(each for each in text if each.isprintable() or each in "\n\t")[-4000:]


def joined(on_ec2):
    # type: (str) -> str
    token = os.environ.pop("BERTH_JOIN_TOKEN", "")
    while True:
        try:
            body = measure(on_ec2)  # this machine's address is unknown until the server's name resolves
            body["token"] = token
            answer = send("node-pools/%s/join" % POOL, body)
            return store_secret(str(answer["secret"]))
        except OSError as error:  # may be a conflict: the machine can call before its order is recorded
            print("not joined yet: %s" % error, file=sys.stderr)
            time.sleep(EVERY_SECONDS)


def measure(on_ec2):
    # type: (str) -> dict[str, object]
    gpus = [line.split(", ") for line in nvidia_smi().splitlines() if line.strip()]
    return {
        "name": socket.gethostname().split(".")[0],
        "address": metadata("local-ipv4") if on_ec2 else own_address(),
        "instance_id": on_ec2,
        "cpu": float(len(os.sched_getaffinity(0))),
        "memory_mib": memory_mib(),
        "devices": [gpu[0] for gpu in gpus],
        "gpu_model": gpus[0][1].replace("NVIDIA ", "") if gpus else "",
    }


def nvidia_smi():
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
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect((host, 9))  # sends nothing
        return str(line.getsockname()[0])


def metadata(path):
    # type: (str) -> str
    """Return a value from EC2's metadata service (IMDSv2), or an empty string."""
    wanted = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    try:
        ask = urllib.request.Request(METADATA + "/latest/api/token", method="PUT", headers=wanted)
        token = urllib.request.urlopen(ask, timeout=2).read().decode()
        headers = {"X-aws-ec2-metadata-token": token}
        ask = urllib.request.Request(METADATA + "/latest/meta-data/" + path, headers=headers)
        return str(urllib.request.urlopen(ask, timeout=2).read().decode())
    except OSError:
        return ""


def interruption():
    # type: () -> dict[str, object] | None
    action = metadata("spot/instance-action")
    if action:
        return {"reason": "EC2 interrupts this spot instance", "at": json.loads(action)["time"]}
    if metadata("events/recommendations/rebalance"):
        return {"reason": "EC2 recommends rebalancing this spot instance", "at": None}
    return None


def send(path, body, secret=""):
    # type: (str, dict[str, object], str) -> dict[str, object]
    headers = {"Content-Type": "application/json"}
    if secret:
        headers["Authorization"] = "Bearer " + secret
    data = json.dumps(body).encode()
    ask = urllib.request.Request(URL + "/api/v1/" + path, data=data, headers=headers, method="POST")
    try:
        return json.load(opener().open(ask, timeout=TIMEOUT))
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")[:500]
        if error.code in (401, 404, 422):
            raise Refused(text)
        raise OSError("%d: %s" % (error.code, text))


def is_safe(url):
    # type: (str) -> bool
    scheme, _, rest = url.partition("://")
    host = rest.split("/")[0].rpartition("@")[2].rsplit(":", 1)[0]
    here = host in ("localhost", "[::1]") or (host[:4] == "127." and host.replace(".", "").isdigit())
    return scheme == "https" or (scheme == "http" and (here or os.environ.get("BERTH_PLAIN_HTTP") == "1"))


def opener():
    # type: () -> urllib.request.OpenerDirector
    context = ssl.create_default_context(cafile=os.environ.get("BERTH_CA") or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), NoRedirects)


def stored_secret():
    # type: () -> str
    try:
        with open(os.path.join(STATE, "secret")) as file:
            return file.read().strip()
    except OSError:
        return ""


def store_secret(secret):
    # type: (str) -> str
    write_private("secret", secret)
    return secret


def write_private(name, text):
    # type: (str, str) -> str
    """Write a file that only its owner can read; return its path."""
    os.makedirs(STATE, mode=0o700, exist_ok=True)
    path = os.path.join(STATE, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    return path


if __name__ == "__main__":
    sys.exit(main())
