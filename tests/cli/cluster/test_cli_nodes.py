"""Tests for the node commands."""

import httpx

from tests.cli.terminal import Terminal
from tests.client.stub_server import TIME, StubServer, page

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


def test_pool_upgrade_selects_nodes_with_outdated_agents(terminal: Terminal) -> None:
    def node(name: str, **agent: object) -> dict[str, object]:
        amounts = {"free": HAS, "capacity": HAS, "since": TIME, "created_at": TIME}
        inventory = {"agent_version": "0.1.0+abc", **agent} if agent else None
        return {"name": name, "pool": "metal", "state": "ready", "inventory": inventory, **amounts}

    old = node("metal-0", agent_outdated=True)
    nodes = page([old, node("metal-1", agent_outdated=False), node("metal-2")])
    server = StubServer(nodes, httpx.Response(200, json=old))
    result = terminal.run("node", "upgrade", "--pool", "metal", server=server)
    assert (result.exit_code, result.stdout.splitlines()[1].split()) == (0, ["metal-0", "0.1.0+abc"])
    assert server.calls[1:] == ["POST /api/v1/nodes/metal-0/upgrade"]
    server = StubServer(page([node("metal-2")]))
    result = terminal.run("node", "upgrade", "--pool", "metal", server=server)
    assert "All agents have the current version." in result.stdout + result.stderr
    rejected = terminal.run("node", "upgrade", server=StubServer())
    assert (rejected.exit_code, rejected.stderr) == (
        2,
        "berth: specify either a node or --pool.\n",
    )
