"""Tests for `berth queue` and `berth evictions --matrix`."""

from typing import Any

import httpx
import pytest

from tests.cli.terminal import Terminal
from tests.client.stub_server import TIME, StubServer, page, problem

PENDING = {
    "queue_position": 1, "workload": "00000000-0000-4000-8000-000000000001", "name": "train",
    "project": "vision",
    "department": "research", "priority": 50, "gpus": 8.0, "submitted_at": "2026-06-01T00:00:00Z",
    "reason": "WaitingForCapacity", "message": "8 GPUs are asked for.", "ordering": ["priority 50"],
    "expected_start": None,
}  # fmt: skip


def pools(*names: str) -> httpx.Response:
    return page([{"name": name, "created_at": TIME, "updated_at": TIME} for name in names])


def queue_page(*items: dict[str, Any], following: str | None = None) -> httpx.Response:
    return httpx.Response(200, json={"workloads": 3, "gpus": 24.0, "items": items, "next": following})


def test_pool_may_be_omitted_if_there_is_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    server = StubServer(pools("local"), queue_page(PENDING))
    result = Terminal(monkeypatch).run("queue", server=server)
    assert result.exit_code == 0, result.output
    assert "train" in result.output and "2 more pending workloads" in result.output
    assert server.calls[1].startswith("GET /api/v1/node-pools/local/queue")


def test_pool_is_required_if_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Terminal(monkeypatch).run("queue", server=StubServer(pools("a", "b")))
    assert (result.exit_code, "there are several pools. Specify one of: a, b" in result.output) == (2, True)


def test_queue_command_reads_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    server = StubServer(
        queue_page(PENDING, following="abc"), queue_page({**PENDING, "name": "other", "queue_position": None})
    )
    result = Terminal(monkeypatch).run("queue", "local", "-o", "wide", server=server)
    assert "new" in result.output and "priority 50" in result.output
    assert "cursor=abc" in server.calls[1]


def test_queue_command_shows_no_position_for_workloads_in_the_reserved_phase(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reserved = {**PENDING, "name": "next", "queue_position": None, "phase": "reserved"}
    result = Terminal(monkeypatch).run("queue", "local", server=StubServer(queue_page(reserved, PENDING)))
    assert [line.split()[:2] for line in result.output.splitlines()[1:3]] == [
        ["reserved", "next"],
        ["1", "train"],
    ]


def test_eviction_matrix_sums_evictions_by_project_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = {
        "victim_project": "vision",
        "preemptor_project": "",
        "evictions": 12_345,
        "gpus": 8000.0,
        "lost_gpu_seconds": 5_400_000,
    }
    response = httpx.Response(200, json={"pairs": [pair]})
    server = StubServer(response)
    result = Terminal(monkeypatch).run("evictions", "--matrix", server=server)
    head, row = result.output.splitlines()
    assert head.split("  ")[0] == "VICTIM PROJECT" and "PREEMPTOR PROJECT" in head
    assert row.split() == ["vision", "-", "12,345", "8,000", "1,500.0"]
    as_csv = (
        Terminal(monkeypatch).run("evictions", "--matrix", "-o", "csv", server=StubServer(response)).output
    )
    assert ",12345,8000,5400000" in as_csv, "data is not formatted"
    assert "limit=50" in server.calls[0]
    many = StubServer(httpx.Response(200, json={"pairs": [pair], "omitted": 7}))
    assert "7 more pairs" in Terminal(monkeypatch).run("evictions", "--matrix", server=many).output
    missing = StubServer(problem(404, code="not-found"))
    rejected = Terminal(monkeypatch).run("evictions", "--matrix", "--workload", "x", server=missing)
    assert rejected.exit_code == 2
