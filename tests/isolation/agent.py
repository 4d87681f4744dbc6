"""Run a victim pod and a hostile pod of another project, and print which attacks succeeded.

python agent.py DIRECTORY ATTACKS [IMAGE CREDENTIALS]

The hostile pod runs in IMAGE if it is passed. This program uses only the standard library and the code of
nodes, so that any user can run it.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pools.runtimes.base import PodReport, PodSpec, PodState
from pools.runtimes.enclosure import limits
from pools.runtimes.enclosure.levels import pod_uid
from pools.runtimes.local import LocalRuntime
from pools.runtimes.pod_dir import PodDir

PATIENCE = 180.0
MEMORY_LIMIT_MIB, TOO_MUCH_MIB = 48, 64
PROCESSES_MAX, TOO_MANY = 20, 24
LONG_AGO = 1.0
SECRET, WORD, KEY = "password-of-the-victim", "word-of-the-victim", 0x42455254
# It records signals in its workspace, and holds System V shared memory.
VICTIM = """
import ctypes, os, pathlib, signal, sys
workspace = pathlib.Path(os.environ["BERTH_WORKSPACE"])
signal.signal(signal.SIGUSR1, lambda *_: (workspace / "signalled").touch())
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
memory = ctypes.CDLL(None).shmget(int(sys.argv[2]), 1, 0o1666)
(workspace / "model").write_text("weights")
print("ready", flush=True)
try:
    while True:
        signal.pause()
finally:
    ctypes.CDLL(None).shmctl(memory, 0, None)
"""
# It stands for a process of Berth: it ends at the first signal.
BERTH = "import signal; signal.pause()"


def main(directory: Path, attacks: str, image: str = "", credentials: str = "") -> None:
    home = make_home(directory / "home")
    limits.PROCESSES_MAX = PROCESSES_MAX  # a low limit, so that fewer processes have to be started
    runtime = LocalRuntime(home / "run", anchor="")
    outside = {
        "write to the machine's /tmp": f"/tmp/attack-{os.getpid()}",
        "write to the machine's /dev/shm": f"/dev/shm/attack-{os.getpid()}",
        "write to /usr": f"/usr/attack-{os.getpid()}",
    }
    tmp, shm, usr = outside.values()
    with ExitStack() as stack:
        berth = subprocess.Popen([sys.executable, "-c", BERTH])
        stack.callback(berth.wait)
        stack.callback(berth.kill)
        postgres = listen(home / "postgres" / "socket", stack)
        web = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0berth-attack-{os.getpid()}")
        abstract.listen()
        terminal = open_terminal(stack)
        stack.callback(shutil.rmtree, runtime._enclosures.images.store.run_root, ignore_errors=True)
        stack.callback(stop_all, runtime)
        runtime.start(victim())
        wait_for(lambda: b"ready" in runtime.read_log("victim", 0, 100).data)
        victim_pid = command_pid(home / "run" / "pods" / "victim")
        facts = {
            "home": str(home), "secret": SECRET, "word": WORD, "key": KEY, "port": web.getsockname()[1],
            "tmp": tmp, "shm": shm, "usr": usr, "socket": postgres, "terminal": terminal,
            "abstract": f"berth-attack-{os.getpid()}", "too_much": TOO_MUCH_MIB, "too_many": TOO_MANY,
            "left": f"left-by-the-attack-{os.getpid()}",
            "pids": {"victim": victim_pid, "berth": berth.pid},
            "secret_files": [
                f"{PodDir(home / 'run' / 'pods' / 'victim').secrets.files_directory}/key",
                f"/proc/{victim_pid}/root/run/secrets/key",
            ],
        }  # fmt: skip
        limit = MEMORY_LIMIT_MIB if "memory" in runtime.isolation.limits else 0
        pod = replace(hostile(attacks, facts, limit), image=image, registry_auth=credentials)
        runtime.start(pod)
        end = wait_for_end(runtime, "hostile")
        log = runtime.read_log("hostile", 0, 100_000).data.decode()
        succeeded = read_successes(log)
        succeeded |= follow_links(runtime, home)
        if is_running(str(facts["left"])):
            succeeded.add("leave a process behind")
        for name, path in outside.items():
            if Path(path).exists():
                Path(path).unlink()
                succeeded.add(name)
        runtime.stop("victim", 30)
        wait_for_end(runtime, "victim")
        if (home / "run" / "workspaces" / "victim" / "signalled").exists():
            succeeded.add("signal another pod")
        if berth.poll() is not None:
            succeeded.add("signal Berth")
        if (home / "run" / "pods" / "hostile" / "forged").exists():
            succeeded.add("write a record for itself")
    isolation = runtime.isolation
    result = {"level": isolation.level, "obstacle": isolation.obstacle, "succeeded": sorted(succeeded)}
    result["limits"] = isolation.limits
    if image:
        result["images_obstacle"] = runtime.get_isolation(["i-0"])["i-0"].images_obstacle
    print(json.dumps(result | {"exit_code": end.exit_code, "message": end.message, "log": log}))


def make_home(home: Path) -> Path:
    """Create files like those of an installation."""
    for name in ("run", "postgres"):
        (home / name).mkdir(parents=True, mode=0o700)
    for name in ("secret_key", "admin-password"):
        (home / name).write_text("secret")
        (home / name).chmod(0o600)
    os.utime(home / "secret_key", (LONG_AGO, LONG_AGO))
    return home


def open_terminal(stack: ExitStack) -> str:
    """Open a terminal as an operator's login does, and return its path."""
    descriptors = os.openpty()
    for descriptor in descriptors:
        stack.callback(os.close, descriptor)
    return os.ttyname(descriptors[1])


def read_successes(log: str) -> "set[str]":
    """Return the attacks that succeeded according to the pod's log."""
    lines = log.splitlines()
    if not lines or not lines[0].startswith("["):
        return set()
    survived = {"take more memory than its limit"} if lines[1:] == ["survived"] else set()
    return {*json.loads(lines[0]), *survived}


def follow_links(runtime: LocalRuntime, home: Path) -> "set[str]":
    """Read the workspace and the logs as Berth does. Return the attacks that made Berth follow a link."""
    succeeded = set()
    secret = home / "secret_key"
    if runtime.read_log("planted", 0, 100).data:
        succeeded.add("have Berth read a file through a link")
    checkpoint = runtime.checkpointed_at("hostile")
    if checkpoint and checkpoint.timestamp() == LONG_AGO:
        succeeded.add("learn the time of a file through a link")
    owner = secret.stat().st_uid
    os.environ["BERTH_ISOLATION"] = (
        "auto"  # with users that are separate from now on, workspaces change hands
    )
    successor = LocalRuntime(home / "run", anchor="")
    successor.start(order("successor", ("true",), "hostile", 2, {}, workspace="hostile"))
    wait_for_end(successor, "successor")
    if secret.stat().st_uid != owner:
        succeeded.add("own a file of Berth through a link")
    runtime.drop_workspace("hostile")
    if not secret.exists():
        succeeded.add("have Berth delete a file through a link")
    return succeeded


def is_running(argument: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_text(errors="replace").split("\0")
        except OSError:
            continue
        if argument in arguments:
            return True
    return False


def listen(path: Path, stack: ExitStack) -> str:
    """Listen on a Unix socket, as the embedded PostgreSQL does."""
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    os.chdir(path.parent)  # socket paths are limited to 107 bytes, so use a relative path
    listener.bind(path.name)
    os.chdir("/")
    listener.listen()
    return str(path)


def victim() -> PodSpec:
    command = ("python3", "-c", VICTIM, WORD, str(KEY))
    alone = order("victim", command, "vision", 1, {})
    return replace(alone, secret_env={"PASSWORD": SECRET}, secret_files={"key": SECRET})


def hostile(attacks: str, facts: "dict[str, object]", memory_limit_mib: int) -> PodSpec:
    command = ("python3", "-c", attacks, json.dumps({**facts, "word": WORD[::-1], "secret": SECRET[::-1]}))
    return order("hostile", command, "hostile", 2, {}, memory_limit_mib=memory_limit_mib)


def order(
    pod_id: str, command: "tuple[str, ...]", project: str, number: int, env: "dict[str, str]",
    workspace: str = "", memory_limit_mib: int = 0,
) -> PodSpec:  # fmt: skip
    return PodSpec(
        pod_id=pod_id, name=pod_id, workspace=workspace or pod_id, command=command, env=env, working_dir=None,
        instance_id="i-0", devices=(), grace_seconds=30, project=project, uid=pod_uid(number),
        memory_limit_mib=memory_limit_mib,
    )  # fmt: skip


def command_pid(pod: Path) -> int:
    fields = dict(field.split("=", 1) for field in (pod / "status").read_text().split("\0"))
    return int(fields["pid"])


def wait_for_end(runtime: LocalRuntime, pod_id: str) -> PodReport:
    wait_for(lambda: runtime.get_reports([pod_id])[pod_id].state is PodState.EXITED)
    return runtime.get_reports([pod_id])[pod_id]


def wait_for(condition: "Callable[[], bool]") -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("a pod did not start or end in time")
        time.sleep(0.02)


def stop_all(runtime: LocalRuntime) -> None:
    for pod_id in runtime.list_pods():
        runtime.stop(pod_id, 0)
    for pod_id in runtime.list_pods():
        wait_for_end(runtime, pod_id)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
