"""Tests for the agent with an EC2 metadata service that supports only version 2."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import REJECTED, write_agent

TOKEN = "metadata-token"
SPOT_TERMINATION = {"action": "terminate", "time": "2030-01-01T12:02:00Z"}


@dataclass
class MachineEnvironment:
    """EC2's metadata service and Berth's API at one address. The API rejects the machine's first report."""

    metadata: dict[str, str]
    address: str = ""
    joined: list[dict[str, Any]] = field(default_factory=list)
    interruption: list[dict[str, Any] | None] = field(default_factory=list)  # responses, one per call
    unauthenticated_paths: list[str] = field(default_factory=list)  # paths requested without a token

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, str]:
        if path == "/latest/api/token":
            is_token_request = method == "PUT" and "X-aws-ec2-metadata-token-ttl-seconds" in headers
            return (200, TOKEN) if is_token_request else (405, "")
        if path.startswith("/latest/meta-data/"):
            if headers.get("X-aws-ec2-metadata-token") != TOKEN:
                self.unauthenticated_paths.append(path)
                return 401, ""
            value = self.metadata.get(path.removeprefix("/latest/meta-data/"))
            return (404, "") if value is None else (200, value)
        if path.endswith("/join"):
            self.joined.append(json.loads(body))
            return 200, json.dumps({"secret": "s"})
        self.interruption.append(json.loads(body)["interruption"])
        return 401, "{}"


@pytest.fixture
def environment(request: pytest.FixtureRequest) -> Iterator[MachineEnvironment]:
    surroundings = MachineEnvironment({"instance-id": "i-0abc", "local-ipv4": "10.0.0.7", **request.param})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, text = surroundings.answer(self.command, self.path, self.headers, self.rfile.read(length))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def do_PUT(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    surroundings.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield surroundings
    server.shutdown()
    server.server_close()
    thread.join()


def run(surroundings: MachineEnvironment, state: Path) -> None:
    """Run the agent until its first report is rejected."""
    env = {
        "PATH": "/usr/bin:/bin",
        "BERTH_URL": surroundings.address, "BERTH_METADATA_URL": surroundings.address,
        "BERTH_POOL": "gpus", "BERTH_JOIN_TOKEN": "order.x", "BERTH_MACHINE_STATE": str(state),
    }  # fmt: skip
    command = [sys.executable, "-S", str(write_agent(state))]
    assert (
        subprocess.run(command, env=env, check=False, timeout=180, capture_output=True).returncode == REJECTED
    )


@pytest.mark.parametrize("environment", [{}], indirect=True)
def test_machine_joins_with_its_instance_id(environment: MachineEnvironment, tmp_path: Path) -> None:
    run(environment, tmp_path)
    [body] = environment.joined
    assert (body["instance_id"], body["address"]) == ("i-0abc", "10.0.0.7")
    assert environment.interruption == [None]
    assert environment.unauthenticated_paths == []


@pytest.mark.parametrize(
    "environment", [{"spot/instance-action": json.dumps(SPOT_TERMINATION)}], indirect=True
)
def test_report_of_a_spot_interruption_includes_the_interruption_time(
    environment: MachineEnvironment, tmp_path: Path
) -> None:
    run(environment, tmp_path)
    reason = "EC2 will interrupt this spot instance"
    assert environment.interruption == [{"reason": reason, "at": SPOT_TERMINATION["time"]}]


@pytest.mark.parametrize(
    "environment",
    [{"events/recommendations/rebalance": '{"noticeTime": "2030-01-01T12:00:00Z"}'}],
    indirect=True,
)
def test_rebalance_recommendation_is_reported(environment: MachineEnvironment, tmp_path: Path) -> None:
    # The recommendation leads to a drain without a deadline.
    run(environment, tmp_path)
    reason = "EC2 recommends rebalancing this spot instance"
    assert environment.interruption == [{"reason": reason, "at": None}]
