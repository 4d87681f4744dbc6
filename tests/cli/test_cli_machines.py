"""Claims about the commands for machines that joined a pool, and for the tokens by which they join."""

import json
from typing import Any

import httpx
import pytest

from tests.cli.desk_of_commands import Terminal
from tests.client.desk import Desk, page, problem

PATH = "/api/v1/node-pools/metal"


def machine(**fields: Any) -> dict[str, Any]:
    has = {"cpu": 16.0, "memory_mib": 65536, "gpus": 2, "gpu_model": "L4", "address": "10.1.0.5"}
    return {"name": "box-1", "state": "used", "node": "metal-0", **has, **fields}


def token(**fields: Any) -> dict[str, Any]:
    known = {"prefix": "join_AbCdE", "comment": "rack 7", "issued_by": "alice"}
    return {"id": 7, "state": "open", **known, **fields}


def answer(body: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=body)


def test_machines_are_listed_with_what_they_are_now(terminal: Terminal) -> None:
    desk = Desk(page([machine(), machine(name="box-2", state="free", node=None)]))
    told = terminal.run("machine", "list", "metal", desk=desk)
    assert told.exit_code == 0
    first, second = told.stdout.splitlines()[1:]
    assert first.split()[:5] == ["box-1", "used", "metal-0", "2", "L4"]
    assert second.split()[:3] == ["box-2", "free", "-"]
    assert desk.asked == [f"GET {PATH}/machines?limit=200"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"state": "draining"}, "box-1 departs once metal-0 is drained\n"),
        ({"state": "departed", "node": None}, "box-1 has departed\n"),
    ],
)
def test_a_removed_machine_says_how_it_goes(terminal: Terminal, fields: dict[str, Any], said: str) -> None:
    desk = Desk(answer(machine(**fields)))
    told = terminal.run("machine", "remove", "metal", "box-1", "--reason", "sold", desk=desk)
    assert (told.exit_code, told.stdout) == (0, said)
    assert desk.asked == [f"POST {PATH}/machines/box-1/remove"]
    assert json.loads(desk.requests[-1].content) == {"reason": "sold"}


def test_a_token_is_alone_on_stdout(terminal: Terminal) -> None:
    desk = Desk(answer(token(token="join_AbCdEfgh"), 201))
    words = ("machine", "token", "issue", "metal", "--comment", "rack 7", "--expires", "2h")
    told = terminal.run(*words, desk=desk)
    assert (told.exit_code, told.stdout) == (0, "join_AbCdEfgh\n")
    assert json.loads(desk.requests[-1].content) == {"comment": "rack 7", "lifetime_seconds": 7200}
    lost = terminal.run(*words, desk=Desk(answer(token(token=None), 201)))
    assert (lost.exit_code != 0, lost.stdout) == (True, "")
    assert "token 7" in lost.stderr


def test_tokens_are_revoked_by_id_or_by_how_they_begin(terminal: Terminal) -> None:
    for word in ("7", "join_AbCdE"):
        desk = Desk(page([token(), token(id=8, prefix="join_Other")]), httpx.Response(204))
        told = terminal.run("machine", "token", "revoke", "metal", word, desk=desk)
        assert (told.exit_code, told.stdout) == (0, "join_AbCdE... revoked\n")
        assert desk.asked[-1] == f"DELETE {PATH}/join-tokens/7"
    unknown = terminal.run("machine", "token", "revoke", "metal", "9", desk=Desk(page([token()])))
    assert (unknown.exit_code, unknown.stderr.splitlines()) == (
        2, ["berth: no open token '9'; one of: 7"],
    )  # fmt: skip


def test_only_open_tokens_are_listed_unless_all_are_asked_for(terminal: Terminal) -> None:
    both = page([token(), token(id=6, state="used", used_by="box-1")])
    told = terminal.run("machine", "token", "list", "metal", desk=Desk(both))
    assert [line.split()[0] for line in told.stdout.splitlines()[1:]] == ["7"]
    told = terminal.run("machine", "token", "list", "metal", "--all", desk=Desk(both))
    assert [line.split()[0] for line in told.stdout.splitlines()[1:]] == ["7", "6"]
    refused = terminal.run("machine", "token", "list", "metal", desk=Desk(problem(403, detail="No.")))
    assert refused.exit_code != 0
