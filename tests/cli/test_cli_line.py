"""`berth queue` and `berth evictions --matrix`."""

import httpx

from tests.cli.desk_of_commands import Terminal
from tests.client.desk import Desk, page, problem

WAITER = {
    "queue_position": 1, "workload": "00000000-0000-4000-8000-000000000001", "name": "train",
    "project": "vision",
    "department": "research", "priority": 50, "gpus": 8.0, "submitted_at": "2026-06-01T00:00:00Z",
    "reason": "WaitingForCapacity", "message": "8 GPUs are asked for.", "ordering": ["priority 50"],
    "expected_start": None,
}  # fmt: skip


def line(*items: dict, following: str | None = None) -> httpx.Response:
    return httpx.Response(200, json={"workloads": 3, "gpus": 24.0, "items": items, "next": following})


def test_the_only_pool_needs_no_name(monkeypatch) -> None:
    desk = Desk(page([{"name": "local"}]), line(WAITER))
    told = Terminal(monkeypatch).run("queue", desk=desk)
    assert told.exit_code == 0, told.output
    assert "train" in told.output and "2 more pending workloads" in told.output
    assert desk.asked[1].startswith("GET /api/v1/node-pools/local/queue")


def test_of_several_pools_one_must_be_named(monkeypatch) -> None:
    told = Terminal(monkeypatch).run("queue", desk=Desk(page([{"name": "a"}, {"name": "b"}])))
    assert (told.exit_code, "name a pool, one of: a, b" in told.output) == (2, True)


def test_the_line_is_read_to_its_end(monkeypatch) -> None:
    desk = Desk(line(WAITER, following="abc"), line({**WAITER, "name": "other", "queue_position": None}))
    told = Terminal(monkeypatch).run("queue", "local", "-o", "wide", desk=desk)
    assert "new" in told.output and "priority 50" in told.output
    assert "cursor=abc" in desk.asked[1]


def test_evictions_are_added_up(monkeypatch) -> None:
    pair = {
        "victim_project": "vision",
        "preemptor_project": "",
        "evictions": 2,
        "gpus": 8.0,
        "lost_gpu_seconds": 5400,
    }
    desk = Desk(httpx.Response(200, json={"pairs": [pair]}))
    told = Terminal(monkeypatch).run("evictions", "--matrix", desk=desk)
    assert [line.split() for line in told.output.splitlines()][1] == ["vision", "-", "2", "8", "1.5"]
    assert "limit=50" in desk.asked[0]
    many = Desk(httpx.Response(200, json={"pairs": [pair], "omitted": 7}))
    assert "7 more pairs" in Terminal(monkeypatch).run("evictions", "--matrix", desk=many).output
    nobody = Desk(problem(404, code="not-found"))
    refused = Terminal(monkeypatch).run("evictions", "--matrix", "--workload", "x", desk=nobody)
    assert refused.exit_code == 2
