"""Tests for the number of SQL queries per submission, and for data that submissions must not cache."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from berth.server.api.models import StoredResponse
from projects.models import ApiToken, Event, Membership, Workload, WorkloadRole
from projects.services.people import tokens
from projects.services.tenants import delete_project
from projects.services.workloads import submission
from projects.services.workloads.storing import store_workloads
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast, make_cast, training

# Token with roles, key, projects with quotas and pools, INSERT with the stored response.
STATEMENTS = 4


def submit(caller: Caller, name: str, **changes: Any) -> Any:
    document = training(name, project="vision", **changes)
    return caller.post("workloads", document, Idempotency_Key=f"key of {name}")


def test_submission_runs_four_queries(dave: Caller, django_assert_num_queries: Any) -> None:
    assert submit(dave, "first").status_code == 201  # records when the token was last used
    with django_assert_num_queries(STATEMENTS):
        assert submit(dave, "second").status_code == 201


@pytest.mark.django_db(transaction=True)
def test_submission_issues_no_begin_or_commit_statements() -> None:
    cast = make_cast()
    caller = Caller(tokens.issue(actor=cast.dave, name="t", scopes=["write"], expires_at=None)[1])
    assert submit(caller, "first").status_code == 201
    with CaptureQueriesContext(connection) as context:
        assert submit(caller, "second").status_code == 201
    queries = [query["sql"] for query in context.captured_queries]
    # The scheduler is notified after each submission; announcements to open pages are merged by time.
    assert len([query for query in queries if "pg_notify" not in query]) == STATEMENTS
    assert any("pg_notify" in query for query in queries)


@pytest.mark.django_db(transaction=True)
def test_submission_to_a_project_that_is_being_deleted_stores_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cast = make_cast()
    caller = Caller(tokens.issue(actor=cast.dave, name="t", scopes=["write"], expires_at=None)[1])

    def store_after_deletion(*arguments: Any) -> Any:
        delete_project(actor=cast.alice, project=cast.vision)
        return store_workloads(*arguments)

    monkeypatch.setattr(submission, "store_workloads", store_after_deletion)
    rejected = submit(caller, "late")
    assert (rejected.status_code, rejected.json()["detail"]) == (404, "The project has been deleted.")
    assert not Workload.objects.exists()
    assert not StoredResponse.objects.exists()


@pytest.mark.heavy
def test_query_count_is_independent_of_the_role_tree(dave: Caller, django_assert_num_queries: Any) -> None:
    submit(dave, "first")
    group = {"name": "g", "groups": [{"name": "h", "need": 1, "roles": [{"name": n} for n in "abc"]}]}
    tree = {"roles": None, "groups": [group, {"name": "k", "roles": [{"name": "d", "replicas": 3}]}]}
    with django_assert_num_queries(STATEMENTS):
        assert submit(dave, "tree", **tree).status_code == 201
    roles = WorkloadRole.objects.filter(workload__name="tree").order_by("position")
    assert [(role.name, role.max) for role in roles] == [("a", 1), ("b", 1), ("c", 1), ("d", 3)]


def test_request_after_a_token_or_role_is_revoked_is_rejected(cast: Cast, dave: Caller) -> None:
    assert submit(dave, "before").status_code == 201
    Membership.objects.filter(user=cast.dave.user).delete()
    rejected = submit(dave, "without-a-role")
    assert rejected.status_code == 422
    assert [error["path"] for error in rejected.json()["errors"]] == ["project"]
    ApiToken.objects.filter(user=cast.dave.user).update(revoked_at="2026-01-01T00:00:00Z")
    assert submit(dave, "without-a-token").status_code == 401
    assert list(Workload.objects.values_list("name", flat=True)) == ["before"]


def test_submission_with_a_duplicate_name_stores_nothing(dave: Caller) -> None:
    submit(dave, "once")
    before = (WorkloadRole.objects.count(), Event.objects.count())
    assert dave.post("workloads", training("once", project="vision")).status_code == 409
    assert (WorkloadRole.objects.count(), Event.objects.count()) == before


@pytest.mark.heavy
@pytest.mark.parametrize(("path", "changes"), [("workloads", {}), ("arrays", {"array": {"tasks": 2}})])
def test_rejecting_a_name_in_use_takes_a_bounded_number_of_queries(
    cast: Cast, dave: Caller, path: str, changes: dict[str, Any]
) -> None:
    make.workload(cast.vision, "run")
    dave.get("whoami")  # records when the token was last used

    def conflict() -> tuple[str, int]:
        with CaptureQueriesContext(connection) as context:
            answer = dave.post(path, training("run", project="vision", **changes))
        assert answer.status_code == 409
        return answer.json()["detail"], len(context.captured_queries)

    detail, queries = conflict()
    assert "Choose another name, such as run-2, or wait" in detail
    columns = {"project": cast.vision, "spec": {}, "pools": ["local"], "phase": "completed"}
    Workload.objects.bulk_create(
        Workload(name=f"run-{number}", **columns, ended_at=make.ago()) for number in range(2, 1102)
    )
    detail, more_queries = conflict()
    assert "Choose another name, or wait" in detail
    assert more_queries - queries == 2, "one more range of names, of workloads and of arrays"


@pytest.mark.heavy
@pytest.mark.parametrize("text", ["größe", 'a "quoted" \\ text', "%s {} $1"])
def test_special_characters_are_stored_unchanged(dave: Caller, text: str) -> None:
    assert submit(dave, "texts", env={"TEXT": text}, labels={"label": text}).status_code == 201
    stored = Workload.objects.get(name="texts")
    assert (stored.spec["env"], stored.labels) == ({"TEXT": text}, {"label": text})
