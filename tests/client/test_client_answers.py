"""Answers become values, pages become lists, refusals become errors."""

import httpx
import pytest

from berth.client import Ambiguous, Conflict, Forbidden, Invalid, NotFound, NotSignedIn, ServerFailed
from tests.client.desk import Desk, page, problem, workload


def test_pages_are_read_to_the_end() -> None:
    desk = Desk(page([workload("a"), workload("b")], "more"), page([workload("c")]))
    assert [w.name for w in desk.client().workloads.list(project="vision")] == ["a", "b", "c"]
    assert desk.requests[1].url.params["cursor"] == "more"
    assert desk.requests[1].url.params["project"] == "vision"


def test_a_list_stops_at_its_limit_without_asking_for_more() -> None:
    desk = Desk(page([workload("a"), workload("b")], "more"))
    assert len(list(desk.client().workloads.list(limit=2))) == 2
    assert len(desk.requests) == 1
    assert desk.requests[0].url.params["limit"] == "2"


def test_filters_that_say_nothing_are_left_out() -> None:
    desk = Desk(page([]))
    list(desk.client().workloads.list(project=None, phase=("pending", "running")))
    assert "project" not in desk.requests[0].url.params
    assert desk.requests[0].url.params.get_list("phase") == ["pending", "running"]


def test_what_a_newer_server_adds_is_kept() -> None:
    desk = Desk(httpx.Response(200, json=workload(colour="green")))
    assert desk.client().workloads.get("x").plain() == workload(colour="green")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, Invalid), (401, NotSignedIn), (403, Forbidden), (404, NotFound), (409, Conflict), (412, Conflict),
     (422, Invalid), (500, ServerFailed)],
)  # fmt: skip
def test_each_refusal_has_its_own_error(status: int, kind: type[Exception]) -> None:
    desk = Desk(problem(status, code="some-code", detail="No, because."))
    with pytest.raises(kind, match="No, because") as caught:
        desk.client().workloads.get("x")
    assert caught.value.code == "some-code"  # type: ignore[attr-defined]


def test_an_invalid_document_names_each_field() -> None:
    errors = [{"path": "roles[0].gpu", "message": "too many", "received": "9", "allowed": "at most 8"}]
    desk = Desk(problem(422, detail="x", errors=errors))
    with pytest.raises(Invalid) as caught:
        desk.client().workloads.submit({})
    assert caught.value.lines() == ["roles[0].gpu: too many; received 9; allowed: at most 8"]


def test_another_kind_of_server_at_the_address_is_told_apart() -> None:
    desk = Desk(httpx.Response(200, text="<html>hello</html>"))
    with pytest.raises(ServerFailed, match="something else than JSON"):
        desk.client().workloads.get("x")


def test_a_redirect_is_not_followed_with_the_token() -> None:
    desk = Desk(httpx.Response(302, headers={"Location": "http://elsewhere/"}))
    with pytest.raises(Exception, match="302"):
        desk.client().workloads.get("x")
    assert len(desk.requests) == 1


def test_a_name_means_the_live_workload() -> None:
    live, ended = workload(phase="running"), workload(phase="failed")
    other = workload("train-2")
    desk = Desk(page([ended, live, other]), httpx.Response(200, json=live))
    assert desk.client().workloads.find("train").id == live["id"]
    assert desk.asked[1] == f"GET /api/v1/workloads/{live['id']}"


def test_a_name_that_lives_no_more_means_the_latest() -> None:
    latest = workload(phase="failed", submitted_at="2026-02-01T00:00:00Z")
    desk = Desk(page([latest, workload(phase="completed")]), httpx.Response(200, json=latest))
    assert desk.client().workloads.find("train").phase == "failed"


def test_a_name_in_two_projects_is_answered_with_both() -> None:
    desk = Desk(page([workload(project="vision"), workload(project="speech")]))
    with pytest.raises(Ambiguous) as caught:
        desk.client().workloads.find("train")
    assert caught.value.candidates == ("speech/train", "vision/train")


def test_a_project_before_the_name_asks_only_there() -> None:
    desk = Desk(page([workload()]), httpx.Response(200, json=workload()))
    desk.client().workloads.find("vision/train")
    assert desk.requests[0].url.params["project"] == "vision"


def test_an_id_is_asked_for_directly() -> None:
    desk = Desk(httpx.Response(200, json=workload()))
    desk.client().workloads.find(workload()["id"])
    assert desk.asked == [f"GET /api/v1/workloads/{workload()['id']}"]


def test_changes_end_with_the_workload() -> None:
    states = [workload(phase=phase) for phase in ("pending", "pending", "running", "completed")]
    desk = Desk(*(httpx.Response(200, json=state) for state in states))
    assert [w.phase for w in desk.client().workloads.changes("x")] == ["pending", "running", "completed"]


def test_a_quota_edit_keeps_the_values_it_does_not_name() -> None:
    quota = {
        "owner": {"kind": "project", "name": "vision"}, "pool": "local",
        "gpu": 4, "cpu": None, "memory_mib": None, "limit": {"gpu": 6, "cpu": None, "memory_mib": None},
        "weight": 2, "over_quota": True, "rank": None, "version": 3, "standing": None,
    }  # fmt: skip
    desk = Desk(httpx.Response(200, json=quota, headers={"ETag": '"3"'}), httpx.Response(200, json=quota))
    desk.client().quotas.edit("project", "vision", "local", {"gpu": 5, "limit": {"cpu": 9}})
    sent = desk.requests[1]
    assert sent.headers["If-Match"] == '"3"'
    assert httpx.Response(200, content=sent.content).json() == {
        "gpu": 5, "cpu": None, "memory_mib": None, "weight": 2,
        "limit": {"gpu": 6, "cpu": 9, "memory_mib": None},
        "over_quota": True, "rank": None,
    }  # fmt: skip
