"""Tests for processes that are forked from a preloaded process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.up.test_supervisor import ENV

# Loads Berth as `berth up` does, and prints what a fork could not use.
LOADED = """
import json, sys, threading
from berth.server.up.preload import UNUSED, load, warm_up
load()
warm_up()  # this call must succeed without a database
from django.db import connections
print(json.dumps({
    "threads": threading.active_count(),
    "unused": [name for name in (*UNUSED, "authlib") if name in sys.modules],
    "connections": sum(each.connection is not None for each in connections.all(initialized_only=True)),
}))
"""

# A supervisor whose preloaded process forks small programs instead of Berth's.
PRELOAD = """
import signal, sys
from berth.server.up import preload

def wait():
    print("written to the log", flush=True)
    signal.pause()

preload.MODULES = ()
preload.warm_up = lambda: None
preload._programs = lambda sockets: {"waits": wait, "fails": lambda: sys.exit(3)}
preload.main()
"""
SUPERVISOR = """
import json, os, signal, socket, subprocess, sys, time
from pathlib import Path
from berth.server.up.supervision.forks import Forks
from berth.server.up.supervision.orphans import adopt_orphans, find_orphans
from berth.parent_bound import parent_bound_command

place = Path(sys.argv[1])
adopt_orphans()
forks = Forks()
number = forks.inherited.fileno()

def start():
    command = parent_bound_command([sys.executable, "-c", sys.argv[2], str(number)])
    process = subprocess.Popen(command, pass_fds=[number])
    forks.wait_until_loaded(process)
    return process

def ended(process):
    while process.poll() is None:
        time.sleep(0.01)
    return process.returncode

def fork(name):
    with (place / f"{name}.log").open("ab") as log:
        return forks.fork(name, log)

facts = {}
preloaded = start()
process = fork("waits")
status = dict(line.split(":\\t") for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
facts["parent"] = int(status["PPid"]) == os.getpid()
facts["title"] = Path(f"/proc/{process.pid}/cmdline").read_bytes().rstrip(b"\\0").decode()
facts["name"] = status["Name"]
facts["exit code"] = ended(fork("fails"))
while not (place / "waits.log").read_text():
    time.sleep(0.01)
facts["log"] = (place / "waits.log").read_text()

# The request of a supervisor that does not wait for the ID
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
with (place / "lost.log").open("ab") as log:
    socket.send_fds(forks._requests, [b"waits"], [theirs.fileno(), log.fileno()])
theirs.close()
ours.recv(64)
ours.close()
while find_orphans([process.pid, preloaded.pid]):
    time.sleep(0.01)
facts["lost"] = (place / "lost.log").read_text()

preloaded.kill()
preloaded.wait()
facts["survives"] = process.poll() is None
start()
facts["forked again"] = ended(fork("fails"))
process.kill()
facts["killed"] = ended(process)
print(json.dumps(facts))
"""


def run_program(*arguments: str) -> dict[str, Any]:
    completed = subprocess.run(
        [sys.executable, "-c", *arguments], env=ENV, capture_output=True, text=True, check=False, timeout=120
    )
    assert completed.returncode == 0, completed.stderr
    return dict(json.loads(completed.stdout.splitlines()[-1]))


def test_preloading_process_has_no_threads_connections_or_unused_packages(tmp_path: Path) -> None:
    loaded = f"import os; os.environ['BERTH_HOME'] = {str(tmp_path)!r}\n{LOADED}"
    assert run_program(loaded) == {"threads": 1, "unused": [], "connections": 0}


def test_forked_process_is_reparented_to_the_supervisor_and_outlives_the_preloading_process(
    tmp_path: Path,
) -> None:
    facts = run_program(SUPERVISOR, str(tmp_path), PRELOAD)
    assert facts == {
        "parent": True,
        "title": "berth: waits",
        "name": "berth: waits",
        "exit code": 3,
        "log": "written to the log\n",
        "lost": "",
        "survives": True,
        "forked again": 3,
        "killed": -9,
    }
