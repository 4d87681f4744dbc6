"""Tests for commands that users run in pods of a real cluster."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.api_server.credentials import parse_kubeconfig
from pools.runtimes.shim.channels.frames import (
    CHUNK,
    CREDIT,
    END,
    ERRORS,
    FROM_POD,
    INPUT,
    OUTPUT,
    RESIZE,
    START,
    STATUS,
    WINDOW,
    FrameReader,
    decode_credit,
    encode_credit,
    encode_frame,
)
from tests.contracts.kubernetes.cluster import with_shipped_role
from tests.contracts.kubernetes.stage import RealKubernetesStage
from tests.contracts.pods import poll_until, running

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

OPEN_AND_WAIT = """
import sys, time
from pathlib import Path
from pools.kubernetes.api_server.credentials import parse_kubeconfig
from pools.kubernetes.api_server.api import Api
from pools.kubernetes.channels.loop import CHANNELS
from pools.runtimes.shim.channels.frames import START, encode_frame
kubeconfig, pod, request = sys.argv[1:]
connection = CHANNELS.open(Api(parse_kubeconfig(Path(kubeconfig).read_text())), pod)
connection.sendall(encode_frame(START, request.encode()))
print(connection.recv(100), flush=True)
time.sleep(600)
"""


@dataclass
class Client:
    """A channel client that returns flow-control credit only when a test requests it."""

    connection: socket.socket
    received: dict[int, bytes] = field(default_factory=dict)
    reader: FrameReader = field(default_factory=lambda: FrameReader(FROM_POD))
    sendable: int = WINDOW

    def send(self, kind: int, payload: bytes = b"") -> None:
        self.connection.sendall(encode_frame(kind, payload))

    def start(self, *command: str, terminal: dict[str, object] | None = None) -> None:
        self.send(START, json.dumps({"command": command, "terminal": terminal}).encode())

    def read(self, *, returns_credit: bool = True) -> bool:
        """Process the next frame. Return False at the end of the connection."""
        data = self.connection.recv(65536)
        for kind, payload in self.reader.feed(data):
            if kind == CREDIT:
                self.sendable += decode_credit(payload)
                continue
            self.received[kind] = self.received.get(kind, b"") + payload
            if kind in (OUTPUT, ERRORS) and returns_credit:
                self.connection.sendall(encode_credit(len(payload)))
        return bool(data)

    def wait_for(self, text: bytes) -> None:
        while text not in self.received.get(OUTPUT, b""):
            assert self.read(), self.received

    def status(self) -> dict[str, object]:
        while STATUS not in self.received:
            assert self.read(), self.received
        return dict(json.loads(self.received[STATUS]))


@pytest.fixture
def stage(kubeconfig: str, tmp_path: Path) -> Iterator[RealKubernetesStage]:
    stage = RealKubernetesStage(tmp_path / "runtime", parse_kubeconfig(with_shipped_role(kubeconfig)))
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    yield stage
    stage.sweep(Api(parse_kubeconfig(kubeconfig)))
    stage.close()


def open_client(stage: RealKubernetesStage) -> Client:
    connection: socket.socket = stage.runtime.open_channel("p-1")
    connection.settimeout(120)
    return Client(connection)


def is_running(mark: str) -> bool:
    """Return whether a process with this argument runs in a pod.

    Pod processes are also processes of this machine.
    """
    return subprocess.run(["pgrep", "-f", f"^sleep {mark}"], check=False, capture_output=True).returncode == 0


def test_input_and_output_of_commands_stay_within_the_flow_control_window(stage: RealKubernetesStage) -> None:
    copy, data = open_client(stage), os.urandom(3 * WINDOW)
    copy.start("sh", "-c", "cat; echo done >&2; exit 5")
    for begin in range(0, len(data), CHUNK):
        while copy.sendable < CHUNK:
            assert copy.read()
        copy.send(INPUT, data[begin : begin + CHUNK])
        copy.sendable -= CHUNK
    copy.send(END)
    assert copy.status() == {"exit_code": 5}
    assert (copy.received[OUTPUT] == data, copy.received[ERRORS]) == (True, b"done\n")

    flood = open_client(stage)
    flood.start("yes")
    while len(flood.received.get(OUTPUT, b"")) < WINDOW:
        assert flood.read(returns_credit=False)
    missing = open_client(stage)
    missing.start("no-such-program")
    assert missing.status() == {"exit_code": 127}
    assert missing.received[ERRORS] == b"no-such-program: No such file or directory\n"
    assert not select.select([flood.connection], [], [], 0)[0], "a client without credit receives no more"
    flood.connection.sendall(encode_credit(WINDOW))
    assert flood.read(), "the flood continues"
    flood.connection.close()

    copy = open_client(stage)
    copy.send(START, b'{"copy_from": "/etc"}')
    status = copy.status()
    assert (status["status"], "its image has no `python3`" in str(status["error"])) == (409, True), status

    shell = open_client(stage)
    shell.start("sh", terminal={"rows": 24, "columns": 80, "type": "xterm"})
    shell.send(INPUT, b"echo type-$TERM; busybox tty; busybox stty size\n")
    shell.wait_for(b"24 80")
    assert b"type-xterm" in shell.received[OUTPUT]
    assert b"/dev/pts/" in shell.received[OUTPUT]
    shell.send(RESIZE, b'{"rows": 33, "columns": 99}')
    shell.send(INPUT, b'until [ "$(busybox stty size)" = "33 99" ]; do sleep 0.1; done; exit 7\n')
    assert shell.status() == {"exit_code": 7}


def test_processes_of_a_channel_end_when_it_closes(
    stage: RealKubernetesStage, kubeconfig: str, tmp_path: Path
) -> None:
    marks = [f"6000.{number}{time.monotonic_ns()}" for number in range(3)]
    script = "busybox setsid sleep {} & sleep {} & echo started; {}"
    exits = open_client(stage)
    exits.start("sh", "-c", script.format(marks[0], marks[0], "exit 0"))
    assert exits.status() == {"exit_code": 0}
    assert not is_running(marks[0]), "the status follows the end of all processes"

    closes = open_client(stage)
    closes.start("sh", "-c", script.format(marks[1], marks[1], "wait"), terminal={})
    closes.wait_for(b"started")
    poll_until(lambda: is_running(marks[1]))  # the shell forks before it starts the program
    closes.connection.close()
    poll_until(lambda: not is_running(marks[1]))

    (tmp_path / "kubeconfig").write_text(with_shipped_role(kubeconfig))
    request = json.dumps({"command": ["sh", "-c", script.format(marks[2], marks[2], "wait")]})
    pod = f"/api/v1/namespaces/{stage.namespace}/pods/p-1"
    berth = subprocess.Popen(
        [sys.executable, "-c", OPEN_AND_WAIT, str(tmp_path / "kubeconfig"), pod, request],
        stdout=subprocess.PIPE,
    )
    assert berth.stdout is not None
    assert b"started" in berth.stdout.readline()
    poll_until(lambda: is_running(marks[2]))  # the shell forks before it starts the program
    berth.send_signal(signal.SIGKILL)
    berth.wait()
    poll_until(lambda: not is_running(marks[2]))


def fetch(stage: RealKubernetesStage, port: int) -> bytes:
    """Return the response of a web server in the pod, or nothing if no process listens on the port."""
    with stage.runtime.open_port("p-1", port) as connection:
        connection.settimeout(120)
        with suppress(BrokenPipeError):
            connection.sendall(b"GET /etc/hostname HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(65536), b""))


SERVERS = """
busybox httpd -f -p 127.0.0.1:8001 -h / & busybox httpd -f -p 8002 -h / &
until busybox wget -q -O - 127.0.0.1:8001/etc/hostname && busybox wget -q -O - 127.0.0.1:8002/etc/hostname
do sleep 0.1; done
echo ready; wait
"""


def test_ports_of_a_pod_are_reachable_through_the_api_server(stage: RealKubernetesStage) -> None:
    server = open_client(stage)
    server.start("sh", "-c", SERVERS)
    server.wait_for(b"ready")
    for port in (8001, 8002):
        assert fetch(stage, port).endswith(b"\r\n\r\np-1\n")
        forward = open_client(stage)
        forward.send(START, json.dumps({"connect": port}).encode())
        forward.send(INPUT, b"GET /etc/hostname HTTP/1.0\r\n\r\n")
        assert forward.status() == {"exit_code": 0}
        assert forward.received[OUTPUT].endswith(b"\r\n\r\np-1\n")
    assert fetch(stage, 8003) == b"", "no process listens"
    forward = open_client(stage)
    forward.send(START, b'{"connect": 8003}')
    assert forward.status() == {"exit_code": 1}
    assert forward.received[ERRORS] == b"Nothing is listening on port 8003 in the pod.\n"
    server.connection.close()
