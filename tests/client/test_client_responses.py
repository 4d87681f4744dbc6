"""Tests for client responses: values, pages, errors and lookup by name."""

import httpx
import pytest

from berth.client import Ambiguous, Conflict, Forbidden, Invalid, NotFound, NotSignedIn, ServerFailed
from tests.client.stub_server import TIME, StubServer, page, problem, workload


def test_list_reads_every_page() -> None:
    server = StubServer(page([workload("a"), workload("b")], "more"), page([workload("c")]))
    assert [w.name for w in server.client().workloads.list(project="vision")] == ["a", "b", "c"]
    assert server.requests[1].url.params["cursor"] == "more"
    assert server.requests[1].url.params["project"] == "vision"


def test_list_stops_at_its_limit_without_another_request() -> None:
    server = StubServer(page([workload("a"), workload("b")], "more"))
    assert len(list(server.client().workloads.list(limit=2))) == 2
    assert len(server.requests) == 1
    assert server.requests[0].url.params["limit"] == "2"


def test_empty_filters_are_not_sent() -> None:
    server = StubServer(page([]))
    list(server.client().workloads.list(project=None, phase=("pending", "running")))
    assert "project" not in server.requests[0].url.params
    assert server.requests[0].url.params.get_list("phase") == ["pending", "running"]


def test_fields_missing_in_a_response_from_an_older_server_are_empty() -> None:
    fields = {"id": "w-1", "name": "train", "since": TIME, "submitted_at": TIME}
    old = StubServer(httpx.Response(200, json=fields)).client().workloads.get("w-1")
    assert (old.reason, old.pool, old.pods.running) == ("", None, 0)
    assert old.to_dict() == fields


def test_unknown_fields_in_a_response_from_a_newer_server_are_preserved() -> None:
    server = StubServer(httpx.Response(200, json=workload(colour="green")))
    assert server.client().workloads.get("x").to_dict() == workload(colour="green")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, Invalid), (401, NotSignedIn), (403, Forbidden), (404, NotFound), (409, Conflict), (412, Conflict),
     (422, Invalid), (500, ServerFailed)],
)  # fmt: skip
def test_each_error_status_raises_its_own_error(status: int, kind: type[Exception]) -> None:
    server = StubServer(problem(status, code="some-code", detail="No, because."))
    with pytest.raises(kind, match="No, because") as caught:
        server.client().workloads.get("x")
    assert caught.value.code == "some-code"  # type: ignore[attr-defined]


def test_invalid_document_error_lists_each_field() -> None:
    errors = [{"path": "roles[0].gpu", "message": "too many", "received": "9", "allowed": "at most 8"}]
    server = StubServer(problem(422, detail="x", errors=errors))
    with pytest.raises(Invalid) as caught:
        server.client().workloads.submit({})
    assert caught.value.lines() == ["roles[0].gpu: too many; received 9; allowed: at most 8"]


def test_response_that_is_not_json_raises_server_failed() -> None:
    server = StubServer(httpx.Response(200, text="<html>hello</html>"))
    with pytest.raises(ServerFailed, match="did not return JSON"):
        server.client().workloads.get("x")


def test_redirect_is_not_followed() -> None:
    server = StubServer(httpx.Response(302, headers={"Location": "http://elsewhere/"}))
    with pytest.raises(Exception, match="302"):
        server.client().workloads.get("x")
    assert len(server.requests) == 1


def test_name_resolves_to_the_live_workload() -> None:
    live, ended = workload(phase="running"), workload(phase="failed")
    other = workload("train-2")
    server = StubServer(page([ended, live, other]), httpx.Response(200, json=live))
    assert server.client().workloads.find("train").id == live["id"]
    assert server.calls[1] == f"GET /api/v1/workloads/{live['id']}"


def test_name_without_a_live_workload_resolves_to_the_latest_workload() -> None:
    latest = workload(phase="failed", submitted_at="2026-02-01T00:00:00Z")
    server = StubServer(page([latest, workload(phase="completed")]), httpx.Response(200, json=latest))
    assert server.client().workloads.find("train").phase == "failed"


def test_name_in_two_projects_is_ambiguous() -> None:
    server = StubServer(page([workload(project="vision"), workload(project="speech")]))
    with pytest.raises(Ambiguous) as caught:
        server.client().workloads.find("train")
    assert caught.value.candidates == ("speech/train", "vision/train")


def test_project_prefix_restricts_the_lookup() -> None:
    server = StubServer(page([workload()]), httpx.Response(200, json=workload()))
    server.client().workloads.find("vision/train")
    assert server.requests[0].url.params["project"] == "vision"


def test_lookup_by_id_skips_the_list_request() -> None:
    server = StubServer(httpx.Response(200, json=workload()))
    server.client().workloads.find(workload()["id"])
    assert server.calls == [f"GET /api/v1/workloads/{workload()['id']}"]


def test_change_stream_ends_when_the_workload_completes() -> None:
    states = [workload(phase=phase) for phase in ("pending", "pending", "running", "completed")]
    server = StubServer(*(httpx.Response(200, json=state) for state in states))
    assert [w.phase for w in server.client().workloads.changes("x")] == ["pending", "running", "completed"]


def test_quota_edit_preserves_other_values() -> None:
    quota = {
        "owner": {"kind": "project", "name": "vision"}, "pool": "local",
        "gpu": 4, "cpu": None, "memory_mib": None, "limit": {"gpu": 6, "cpu": None, "memory_mib": None},
        "weight": 2, "over_quota": True, "rank": None, "version": 3, "status": None,
    }  # fmt: skip
    server = StubServer(
        httpx.Response(200, json=quota, headers={"ETag": '"3"'}), httpx.Response(200, json=quota)
    )
    server.client().quotas.edit("project", "vision", "local", {"gpu": 5, "limit": {"cpu": 9}})
    sent = server.requests[1]
    assert sent.headers["If-Match"] == '"3"'
    assert httpx.Response(200, content=sent.content).json() == {
        "gpu": 5, "cpu": None, "memory_mib": None, "weight": 2,
        "limit": {"gpu": 6, "cpu": 9, "memory_mib": None},
        "over_quota": True, "rank": None,
    }  # fmt: skip
