"""Tests of the commands for nodes."""

import httpx

from tests.cli.terminal import Terminal
from tests.client.stub_server import TIME, StubServer

HAS = {"gpu": 8.0, "cpu": 64.0, "memory_mib": 1024}


def test_node_description_shows_bootstrap_phases(terminal: Terminal) -> None:
    phases = [
        {"phase": "python", "state": "done", "seconds": 4, "message": ""},
        {"phase": "pip", "state": "failed", "seconds": 9, "message": "No matching\ndistribution \x1b[31m"},
        {"phase": "start", "state": "failed", "seconds": 2, "message": "not found", "exit_code": 127},
    ]
    seen = {
        "name": "train-1", "pool": "train", "state": "booting", "free": HAS, "capacity": HAS,
        "environment_digest": "ab" * 32, "phases": phases, "since": TIME, "created_at": TIME,
        "not_ready_reason": "the probe pod failed: exit code 4",
    }  # fmt: skip
    result = terminal.run("node", "describe", "train-1", server=StubServer(httpx.Response(200, json=seen)))
    assert result.exit_code == 0, result.stderr
    assert "Environment: abababababab\n" in result.stdout
    assert "Not ready:   the probe pod failed: exit code 4\n" in result.stdout
    assert "  done    python                   4 s\n  failed  pip " in result.stdout
    assert "          No matching\n          distribution " in result.stdout
    assert "  failed  start                    2 s   exit code 127\n          not found\n" in result.stdout
    assert "\x1b" not in result.stdout
