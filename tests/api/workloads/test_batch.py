"""Tests for submitting many workloads in one request."""

from collections.abc import Iterable
from typing import Any
from unittest.mock import Mock

import pytest

from berth.server.api.parsers import BATCH_MAX, BODY_MAX
from projects.models import Audit, Event, Membership, Workload, WorkloadRole
from projects.services.workloads import submission
from tests.api.conftest import Caller
from tests.cast import Cast, training

PATH = "workloads:batch"
# Token with roles, savepoint, key, savepoint, projects, quotas, pools, INSERT, releases, stored response.
STATEMENTS = 9


def documents(names: Iterable[str], **changes: Any) -> list[dict[str, Any]]:
    return [training(name, project="vision", **changes) for name in names]


def numbered(count: int, prefix: str = "w") -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def names() -> list[str]:
    return sorted(Workload.objects.values_list("name", flat=True))


def bad_and_good(cast: Cast) -> list[Any]:
    invalid = training("c", project="vision", roles=[{"replicas": 0}])
    return [*documents("ab"), invalid, training("d", project="ads"), "text", *documents("a")]


def test_batch_stores_workloads_with_their_roles_events_and_audit_entries(dave: Caller) -> None:
    answer = dave.post(PATH, {"items": documents(numbered(3))})
    assert answer.status_code == 200, answer.json()
    result = answer.json()
    assert (result["stored"], result["rejected"]) == (3, 0)
    assert [item["workload"]["name"] for item in result["items"]] == numbered(3)
    assert names() == numbered(3)
    for item in result["items"]:
        single = dave.get(f"workloads/{item['workload']['id']}").json()
        assert {name: single[name] for name in item["workload"]} == item["workload"]
    assert WorkloadRole.objects.count() == 3
    assert Event.objects.filter(kind="submitted", actor="dave").count() == 3
    assert Audit.objects.filter(action="submit", actor="dave").count() == 3


@pytest.mark.parametrize("count", [1, 10, 100])
def test_query_count_does_not_grow_with_documents(
    dave: Caller, django_assert_num_queries: Any, count: int
) -> None:
    dave.get("whoami")  # records when the token was last used
    with django_assert_num_queries(STATEMENTS):
        answer = dave.post(PATH, {"items": documents(numbered(count))}, Idempotency_Key="key")
    assert answer.json()["stored"] == count


@pytest.mark.heavy
def test_batch_query_count_is_independent_of_services_secrets_limits_and_errors(
    cast: Cast, dave: Caller, django_assert_num_queries: Any
) -> None:
    dave.get("whoami")
    limited = [{"replicas": 1, "limit": {"memory_mib": 1024}}]
    for prefix, count in (("few", 2), ("many", 20)):
        items = [
            *documents(numbered(count, f"{prefix}-l"), roles=limited),
            *documents(numbered(count, f"{prefix}-d"), after=[{"workload": "missing"}]),
            *documents(numbered(count, f"{prefix}-s"), secrets=[{"name": "token", "env": "TOKEN"}]),
            *(training(name) for name in numbered(count, f"{prefix}-p")),
            *(training(name, project="ads") for name in numbered(count, f"{prefix}-a")),
            *documents(numbered(count, f"{prefix}-i"), max_runtime="long", secrets=[{"name": "absent"}]),
        ]
        # nodes, five statements for dependencies, secrets twice, projects
        with django_assert_num_queries(STATEMENTS + 9):
            answer = dave.post(PATH, {"items": items}, Idempotency_Key=prefix)
        assert (answer.json()["stored"], answer.json()["rejected"]) == (3 * count, 3 * count)


def test_batch_stores_valid_documents_and_reports_invalid_keys(cast: Cast, dave: Caller) -> None:
    result = dave.post(PATH, {"items": bad_and_good(cast)}).json()
    assert (result["stored"], result["rejected"]) == (2, 4)
    assert names() == ["a", "b"]
    rejected = {index: item["error"] for index, item in enumerate(result["items"]) if item["error"]}
    assert {index: [problem["path"] for problem in error["errors"]] for index, error in rejected.items()} == {
        2: ["items[2].roles[0].replicas"], 3: ["items[3].project"], 4: ["items[4]"], 5: ["items[5].name"],
    }  # fmt: skip
    assert {index: error["code"] for index, error in rejected.items()} == {
        2: "invalid-workload", 3: "invalid", 4: "invalid-workload", 5: "conflict",
    }  # fmt: skip


@pytest.mark.parametrize("bad", [2, 3, 4, 5])
def test_atomic_batch_with_an_invalid_document_stores_nothing(cast: Cast, dave: Caller, bad: int) -> None:
    items = bad_and_good(cast)
    answer = dave.post(PATH, {"items": [*items[:2], items[bad]], "atomic": True}, Idempotency_Key="key")
    assert answer.status_code == 422
    assert all(error["path"].startswith("items[2]") for error in answer.json()["errors"])
    assert (names(), Event.objects.count(), Audit.objects.filter(action="submit").count()) == ([], 0, 0)
    again = dave.post(PATH, {"items": items[:2], "atomic": True}, Idempotency_Key="key")
    assert again.json()["stored"] == 2, "a rejected batch leaves its key unused"


def test_viewers_and_users_without_a_role_cannot_submit_a_batch(erin: Caller, frank: Caller) -> None:
    for caller, code in ((erin, "forbidden"), (frank, "invalid")):
        (item,) = caller.post(PATH, {"items": documents("a")}).json()["items"]
        assert (item["workload"], item["error"]["code"]) == (None, code)
        assert item["error"]["errors"][0]["path"] == "items[0].project"
    assert names() == []


def test_repeated_batch_is_stored_once(dave: Caller) -> None:
    sent = [dave.post(PATH, {"items": documents("ab")}, Idempotency_Key="key") for _ in range(2)]
    assert sent[0].content == sent[1].content
    assert sent[1]["Idempotency-Replayed"] == "true"
    assert names() == ["a", "b"]


@pytest.mark.heavy
def test_dry_run_validates_a_batch_without_storing_it(cast: Cast, dave: Caller) -> None:
    dave.post("workloads", training("b", project="vision"))
    result = dave.post(f"{PATH}?dry_run=true", {"items": bad_and_good(cast)}).json()
    assert (result["stored"], result["rejected"]) == (0, 5)
    assert [item["error"] and item["error"]["code"] for item in result["items"]] == [
        None, "conflict", "invalid-workload", "invalid", "invalid-workload", "conflict",
    ]  # fmt: skip
    assert names() == ["b"]


@pytest.mark.heavy
def test_dependency_within_the_batch_causes_no_warning(dave: Caller) -> None:
    items = [
        *documents("a", after=[{"workload": "b"}]),
        *documents("b"),
        *documents("c", after=[{"workload": "gone"}]),
    ]
    warnings = [item["warnings"] for item in dave.post(PATH, {"items": items}).json()["items"]]
    assert warnings == [[], [], ["The dependency vision/gone does not exist yet."]]


@pytest.mark.heavy
def test_batch_wakes_the_scheduler_once(
    dave: Caller, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    wake = Mock()
    monkeypatch.setattr(submission, "wake", wake)
    with django_capture_on_commit_callbacks(execute=True):
        dave.post(PATH, {"items": documents(numbered(20))})
    wake.assert_called_once_with("scheduler")


@pytest.mark.heavy
def test_fifty_documents_count_as_one_request_against_the_rate_limit(dave: Caller, settings: Any) -> None:
    settings.BERTH_RATE_LIMITS = {**settings.BERTH_RATE_LIMITS, "write": 5}
    first = dave.post(PATH, {"items": documents(numbered(101))})
    assert (first.status_code, first["RateLimit-Remaining"]) == (200, "2")
    rejected = dave.post(PATH, {"items": documents(numbered(200, "x"))})
    assert (rejected.status_code, rejected["RateLimit-Remaining"]) == (429, "0")
    assert len(names()) == 101


@pytest.mark.parametrize("items", [[], [{}] * 1001, {}, None])
def test_batch_contains_one_to_a_thousand_documents(dave: Caller, items: Any) -> None:
    rejected = dave.post(PATH, {"items": items})
    assert (rejected.status_code, rejected.json()["errors"][0]["path"]) == (422, "items")


@pytest.mark.heavy
def test_only_json_batches_may_exceed_the_default_body_size(dave: Caller) -> None:
    padding = {"env": {f"V{n}": "x" * 1000 for n in range(40)}}
    large = documents(numbered(100), **padding)
    assert dave.post(PATH, {"items": large}).json()["stored"] == 100
    text = b" " * (BODY_MAX + 1)
    assert dave("POST", PATH, ("application/yaml", text)).status_code == 413
    assert dave("POST", PATH, ("application/json", b" " * (BATCH_MAX + 1))).status_code == 413
    assert dave("POST", "workloads", ("application/json", text)).status_code == 413


@pytest.mark.heavy
def test_too_deeply_nested_document_does_not_affect_other_documents(dave: Caller) -> None:
    deep: Any = "x"
    for _ in range(60):
        deep = [deep]
    result = dave.post(PATH, {"items": [*documents("a"), {"name": "b", "env": deep}]}).json()
    assert result["items"][1]["error"]["errors"][0]["message"] == "is nested too deeply"
    assert names() == ["a"]


def test_batch_submitted_after_a_role_is_revoked_is_rejected(cast: Cast, dave: Caller) -> None:
    assert dave.post(PATH, {"items": documents("a")}).json()["stored"] == 1
    Membership.objects.filter(user=cast.dave.user).delete()
    assert dave.post(PATH, {"items": documents("b")}).json()["stored"] == 0
