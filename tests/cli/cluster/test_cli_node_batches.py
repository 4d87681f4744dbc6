"""Tests for commands that change several nodes."""

import httpx
import pytest

from tests.cli.terminal import Terminal
from tests.client.stub_server import TIME, StubServer, page


def node(state: str) -> httpx.Response:
    amounts = {"gpu": 8.0, "cpu": 64.0, "memory_mib": 1024}
    times = {"since": TIME, "created_at": TIME}
    return httpx.Response(200, json={"name": "train-1", "state": state, "free": amounts, **times})


def test_several_nodes_are_changed_in_one_command_with_a_result_for_each(terminal: Terminal) -> None:
    rejected = httpx.Response(
        409, json={"code": "conflict", "detail": "Cannot cordon node train-1, because the node is cordoned."}
    )
    rejected_as_lost = httpx.Response(
        409, json={"code": "conflict", "detail": "Cannot cordon node train-1, because the node is lost."}
    )
    server = StubServer(
        node("cordoned"), rejected, node("cordoned"), rejected_as_lost, node("lost"), node("cordoned")
    )
    result = terminal.run("node", "cordon", "train-0", "train-1", "train-2", "train-3", server=server)
    assert result.stdout == "train-1 is cordoned\ntrain-1 is already cordoned\ntrain-1 is cordoned\n"
    assert "train-2: Cannot cordon node train-1, because the node is lost." in result.stderr
    assert result.exit_code == 5
    assert [call.split()[1] for call in server.calls if call.startswith("POST")] == [
        f"/api/v1/nodes/train-{number}/cordon" for number in range(4)
    ]


def test_changing_a_single_node_to_its_current_state_is_not_an_error(terminal: Terminal) -> None:
    rejected = httpx.Response(409, json={"code": "conflict", "detail": "The node is ready."})
    result = terminal.run("node", "uncordon", "train-1", server=StubServer(rejected, node("ready")))
    assert (result.exit_code, result.stdout) == (0, "train-1 is already ready\n")


def test_all_cordoned_nodes_of_a_pool_are_uncordoned_after_a_confirmation(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    cordoned = node("cordoned").json()
    nodes = page([{**cordoned, "name": f"train-{number}"} for number in range(12)])
    command = ("node", "uncordon", "--pool", "train")
    refused = terminal.run(*command, server=(unasked := StubServer(nodes)))
    assert refused.exit_code == 2 and "add --yes" in refused.stderr
    assert unasked.calls == ["GET /api/v1/nodes?pool=train&state=cordoned&limit=200"]
    server = StubServer(nodes, *[node("ready")] * 12)
    result = terminal.run(*command, "--yes", server=server)
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 12)
    assert server.calls[1:] == [f"POST /api/v1/nodes/train-{number}/uncordon" for number in range(12)]
    monkeypatch.setattr("berth.cli.commands.infrastructure.nodes.is_interactive", lambda: True)
    declined = terminal.run(*command, server=StubServer(nodes), input="n\n")
    assert "Uncordon 12 nodes of train (train-0, train-1," in declined.stderr
    assert "train-9 and 2 more)?" in declined.stderr and declined.exit_code != 0
    both = terminal.run("node", "uncordon", "train-1", "--pool", "train", server=StubServer())
    assert both.exit_code == 2
    empty = terminal.run(*command, server=StubServer(page([])))
    assert (empty.exit_code, empty.stderr) == (0, "No nodes of train are cordoned.\n")
