"""The program that joins a machine to a pool and follows its instructions.

It runs there alone: the standard library only.

    BERTH_URL=https://berth.example.org BERTH_POOL=metal BERTH_JOIN_TOKEN=join_... python3 program.py

It measures the machine, joins, and calls every few seconds: to say that it is there, that its provider takes
it back (on EC2), and to hear which node it is. What makes it that node is a shell script in the answer, run
as the user this runs as; another script when it is that node no longer. The exit code and the last output of
the first travel to the server with every call.

It runs on the Python that the machine has: 3.9 or newer.

Certificates are checked, against BERTH_CA where that names a file. Plain HTTP is for this machine alone,
unless BERTH_PLAIN_HTTP=1 says that the network is trusted: who can change an answer can run anything here.
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
    """The server knows us no longer, or never did."""


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Where a redirect leads, our secret would be shown to somebody else."""

    def redirect_request(self, *asked):
        # type: (object) -> None
        return None


def main():
    # type: () -> int
    if not is_safe(URL):
        print("BERTH_URL is not https:// (BERTH_PLAIN_HTTP=1 allows it)", file=sys.stderr)
        return 2
    on_ec2 = metadata("instance-id")
    secret = remembered() or joined(on_ec2)
    boot, start = Boot(), Start()
    while True:
        try:
            body = {"interruption": interruption() if on_ec2 else None}  # type: dict[str, object]
            body.update(booted=boot.told(), started=start.report())
            answer = send("machines/call", body, secret)
            boot.follow(answer)
            start.follow(answer)
        except Refused as refusal:
            start.follow({})
            print("refused: %s" % refusal, file=sys.stderr)
            return 1
        except OSError as error:
            print("no answer: %s" % error, file=sys.stderr)
        time.sleep(EVERY_SECONDS)


class Boot:
    """The script that installs what a node is to have: it runs beside our calls, which tell how far it is."""

    def __init__(self):
        # type: () -> None
        self.digest, self.process = "", None  # type: str, subprocess.Popen[bytes] | None
        self.place = os.path.join(STATE, "boot")

    def follow(self, answer):
        # type: (dict[str, object]) -> None
        """Begun once for each node that is to have something; what nobody asks for any more is stopped."""
        wanted = str(answer.get("digest") or "")
        if wanted == self.digest:
            return
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, 9)
        self.digest, self.process = wanted, None
        if not wanted:
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

    def told(self):
        # type: () -> dict[str, object] | None
        if self.process is None:
            return None
        code = self.process.poll()  # before the phases: those of a script that has ended are all there
        with open(os.path.join(self.place, "phases"), "rb") as file:
            phases = phases_in(file.read().decode("utf-8", "replace"))
        output = last_output(os.path.join(self.place, "output"))
        return {"digest": self.digest, "phases": phases, "exit_code": code, "output": output}


class Start:
    """The script that makes the machine its node. It runs beside our calls, for it may install much, and a
    machine that does not call for three minutes counts as gone."""

    def __init__(self):
        # type: () -> None
        self.answer = {}  # type: dict[str, object]
        self.process = None  # type: subprocess.Popen[bytes] | None
        self.began = 0.0
        self.seconds = 0
        self.output = os.path.join(STATE, "start.output")

    def follow(self, answer):
        # type: (dict[str, object]) -> None
        """Stop being the former node and begin to be the present one, where either has changed."""
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
        """None where there is no script, or the server does not say for which instance it is."""
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
    """From a file for our eyes only: a script holds secrets, and every user can read command lines."""
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
    """Each as it is now; `ready` is none of them, and half a line is the next call's."""
    found = {}  # type: dict[str, dict[str, object]]
    for line in lines.splitlines():
        try:
            phase = json.loads(line)
            phase["message"] = printable(phase["message"])
            if phase["phase"] != "ready":
                found[phase["phase"]] = phase
        except (ValueError, KeyError, TypeError):
            pass
    return list(found.values())[:64]


def printable(text):
    # type: (str) -> str
    return "".join(each for each in text if each.isprintable() or each in "\n\t")[-4000:]


def joined(on_ec2):
    # type: (str) -> str
    token = os.environ.pop("BERTH_JOIN_TOKEN", "")
    while True:
        try:
            body = measured(on_ec2)  # its own address is not known before the server's is
            body["token"] = token
            answer = send("node-pools/%s/join" % POOL, body)
            return remember(str(answer["secret"]))
        except OSError as error:  # also "not known yet": the machine may be faster than its order's answer
            print("not joined yet: %s" % error, file=sys.stderr)
            time.sleep(EVERY_SECONDS)


def measured(on_ec2):
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
    with open("/proc/meminfo") as told:
        return next(int(line.split()[1]) // 1024 for line in told if line.startswith("MemTotal:"))


def own_address():
    # type: () -> str
    """That by which this machine reaches the server."""
    host = URL.split("://")[1].split("/")[0].rsplit(":", 1)[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect((host, 9))  # sends nothing
        return str(line.getsockname()[0])


def metadata(path):
    # type: (str) -> str
    """EC2's own word about this machine, asked for in version 2 only; nothing where there is none."""
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
        return {"reason": "EC2 recommends to rebalance this spot instance", "at": None}
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
        said = error.read().decode(errors="replace")[:500]
        if error.code in (401, 404, 422):
            raise Refused(said)
        raise OSError("%d: %s" % (error.code, said))


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


def remembered():
    # type: () -> str
    try:
        with open(os.path.join(STATE, "secret")) as kept:
            return kept.read().strip()
    except OSError:
        return ""


def remember(secret):
    # type: (str) -> str
    write_private("secret", secret)
    return secret


def write_private(name, text):
    # type: (str, str) -> str
    """The path of the file, which only its owner can read."""
    os.makedirs(STATE, mode=0o700, exist_ok=True)
    path = os.path.join(STATE, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    return path


if __name__ == "__main__":
    sys.exit(main())
