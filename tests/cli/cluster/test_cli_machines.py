"""Tests for the machine and join token commands."""

import json
from typing import Any

import httpx
import pytest

from tests.cli.terminal import Terminal
from tests.client.stub_server import TIME, StubServer, page, problem

PATH = "/api/v1/node-pools/metal"


def machine(**fields: Any) -> dict[str, Any]:
    capacity = {"cpu": 16.0, "memory_mib": 65536, "gpus": 2, "gpu_model": "L4", "address": "10.1.0.5"}
    times = {"joined_at": TIME, "last_seen_at": TIME}
    return {"name": "box-1", "state": "used", "node": "metal-0", **capacity, **times, **fields}


def token(**fields: Any) -> dict[str, Any]:
    details = {"prefix": "join_AbCdE", "comment": "rack 7", "issued_by": "alice"}
    times = {"issued_at": TIME, "expires_at": TIME}
    return {"id": 7, "state": "open", "max_machines": 16, "machines_joined": 3, **details, **times, **fields}


def response(body: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=body)


def test_machine_list_shows_state_node_and_gpus(terminal: Terminal) -> None:
    server = StubServer(page([machine(), machine(name="box-2", state="free", node=None)]))
    result = terminal.run("machine", "list", "metal", server=server)
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()[1:]
    assert first.split()[:5] == ["box-1", "used", "metal-0", "2", "L4"]
    assert second.split()[:3] == ["box-2", "free", "-"]
    assert server.calls == [f"GET {PATH}/machines?limit=200"]


def test_machine_list_shows_the_prefix_of_the_join_token(terminal: Terminal) -> None:
    server = StubServer(page([machine(token_prefix="join_AbCdE")]))
    result = terminal.run("machine", "list", "metal", "--token", "7", "-o", "wide", server=server)
    assert "join_AbCdE" in result.stdout
    assert server.calls == [f"GET {PATH}/machines?token=7&limit=200"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"state": "draining"}, "box-1 will leave the pool once metal-0 is drained\n"),
        ({"state": "departed", "node": None}, "box-1 has left the pool\n"),
    ],
)
def test_remove_command_prints_whether_the_machine_is_already_removed(
    terminal: Terminal, fields: dict[str, Any], message: str
) -> None:
    server = StubServer(response(machine(**fields)))
    result = terminal.run("machine", "remove", "metal", "box-1", "--reason", "sold", server=server)
    assert (result.exit_code, result.stdout) == (0, message)
    assert server.calls == [f"POST {PATH}/machines/box-1/remove"]
    assert json.loads(server.requests[-1].content) == {"reason": "sold"}


def test_remove_command_help_names_the_command_for_ssh_hosts(terminal: Terminal) -> None:
    words = " ".join(terminal.run("machine", "remove", "--help").stdout.split())
    assert "To remove an SSH host, use `berth pool edit POOL --hosts FILE`." in words


def test_token_creation_prints_only_the_token(terminal: Terminal) -> None:
    server = StubServer(response(token(token="join_AbCdEfgh"), 201))
    options = ("--comment", "rack 7", "--machines", "16", "--expires", "2h")
    words = ("machine", "token", "issue", "metal", *options)
    result = terminal.run(*words, server=server)
    assert (result.exit_code, result.stdout) == (0, "join_AbCdEfgh\n")
    assert json.loads(server.requests[-1].content) == {
        "comment": "rack 7",
        "lifetime_seconds": 7200,
        "max_machines": 16,
    }
    without_secret = terminal.run(*words, server=StubServer(response(token(token=None), 201)))
    assert (without_secret.exit_code != 0, without_secret.stdout) == (True, "")
    assert "token 7" in without_secret.stderr


def test_token_is_revoked_by_id_or_prefix(terminal: Terminal) -> None:
    for word in ("7", "join_AbCdE"):
        server = StubServer(page([token(), token(id=8, prefix="join_Other")]), httpx.Response(204))
        result = terminal.run("machine", "token", "revoke", "metal", word, server=server)
        assert (result.exit_code, result.stdout) == (0, "join_AbCdE... revoked\n")
        assert server.calls[-1] == f"DELETE {PATH}/join-tokens/7"
    unknown = terminal.run("machine", "token", "revoke", "metal", "9", server=StubServer(page([token()])))
    assert (unknown.exit_code, unknown.stderr.splitlines()) == (
        2, ["berth: no open join token has the ID or prefix '9'. Use one of: 7."],
    )  # fmt: skip


def test_used_up_tokens_are_listed_only_with_the_all_option(terminal: Terminal) -> None:
    both = page([token(), token(id=6, state="used", machines_joined=16)])
    result = terminal.run("machine", "token", "list", "metal", server=StubServer(both))
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == ["7"]
    assert "3/16" in result.stdout
    result = terminal.run("machine", "token", "list", "metal", "--all", server=StubServer(both))
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == ["7", "6"]
    rejected = terminal.run(
        "machine", "token", "list", "metal", server=StubServer(problem(403, detail="No."))
    )
    assert rejected.exit_code != 0


def test_machine_description_shows_hardware_and_software(terminal: Terminal) -> None:
    inventory = {
        "agent_version": "0.1.0+abc", "python": "3.9.2", "os": "Debian 11", "kernel": "5.10",
        "architecture": "x86_64", "cpu_model": "EPYC 7543", "disk_mib": 200, "disk_free_mib": 100,
        "gpu_driver": "550.54", "gpus": [{"model": "L4", "memory_mib": 23034}] * 2,
    }  # fmt: skip
    server = StubServer(response(machine(inventory=inventory)))
    output = terminal.run("machine", "describe", "metal", "box-1", server=server).stdout
    for line in (
        "Devices:     2 L4 with 23,034 MiB\n", "GPU driver:  550.54\n", "Disk:        100 of 200 MiB free\n",
        "System:      Debian 11, kernel 5.10, x86_64\n", "Python:      3.9.2\n", "Agent:       0.1.0+abc\n",
    ):  # fmt: skip
        assert line in output
    assert server.calls == [f"GET {PATH}/machines/box-1"]
