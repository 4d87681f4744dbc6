"""Tests for channels through a node agent, which runs as a separate process."""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from pools.runtimes.base import ChannelRejected, RuntimeFailure
from pools.runtimes.local import LocalRuntime
from pools.runtimes.ray.agents import AgentUnreachable, NodeAgent
from pools.runtimes.shim.channels.frames import FROM_POD, OUTPUT, START, FrameReader, encode_frame
from tests.contracts.pods import ended, order, poll_until, running

AGENT = """
import sys
from pathlib import Path
from pools.runtimes.ray.node.agent import Agent
from pools.runtimes.ray.node.pods import NodePods
agent = Agent(("127.0.0.1", 0), NodePods(Path(sys.argv[1]), ""), "secret", lambda: "")
print(agent.server_address[1], flush=True)
agent.serve_forever()
"""


@dataclass
class Node:
    agent: NodeAgent
    program: subprocess.Popen[str]
    mark: str

    @property
    def has_sleep(self) -> bool:
        pattern = f"^sleep {self.mark}"
        return subprocess.run(["pgrep", "-f", pattern], check=False, capture_output=True).returncode == 0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    pods = LocalRuntime(tmp_path / "node", "")
    pods.start(order("p-1", "sleep", "3600"))
    running(pods, "p-1")
    command = [sys.executable, "-c", AGENT, str(tmp_path / "node")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program, httpx.Client() as http:
        assert program.stdout is not None
        agent = NodeAgent(http, f"http://127.0.0.1:{program.stdout.readline().strip()}", "secret")
        yield Node(agent, program, f"6000.{time.monotonic_ns()}")
        program.kill()
    pods.stop("p-1", 0)
    ended(pods, "p-1")


@pytest.mark.parametrize("killed", ["client", "agent"])
def test_no_process_remains_after_the_client_or_the_agent_was_killed(node: Node, killed: str) -> None:
    connection = node.agent.open_channel("p-1")
    script = f"setsid sleep {node.mark} & echo started; wait"
    connection.sendall(encode_frame(START, b'{"command": ["sh", "-c", "%s"]}' % script.encode()))
    reader, frames = FrameReader(FROM_POD), list[tuple[int, bytes]]()
    while not frames:
        frames = reader.feed(connection.recv(4096))
    assert frames == [(OUTPUT, b"started\n")]
    poll_until(lambda: node.has_sleep)
    if killed == "agent":
        node.program.kill()
        assert connection.recv(4096) == b""
    connection.close()
    poll_until(lambda: not node.has_sleep)


def test_agent_rejects_channels_to_unknown_pods_and_from_unknown_callers(node: Node) -> None:
    with pytest.raises(ChannelRejected, match="not running"):
        node.agent.open_channel("p-2")
    node.agent._headers["Authorization"] = "Bearer wrong"
    with pytest.raises(RuntimeFailure, match="401"):
        node.agent.open_channel("p-1")
    node.program.kill()
    node.program.wait()
    with pytest.raises(AgentUnreachable):
        node.agent.open_channel("p-1")
