"""Tests for list filters that name an object that does not exist or is hidden from the user."""

import uuid
from typing import Any

import pytest

from projects.known_words import REASONS
from projects.services import tenants
from projects.services.audit import ACTIONS
from projects.services.workloads.channels import USES
from scheduler.engine.plan import Reason
from scheduler.models import UsageHour
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast

# (path, parameter, misspelled name, similar name that dave sees)
FILTERS = [
    ("workloads", "project", "visoin", "vision"),
    ("workloads", "department", "reserch", "research"),
    ("workloads", "pool", "loca", "local"),
    ("workloads", "submitted_by", "davee", "dave"),
    ("arrays", "project", "visoin", "vision"),
    ("arrays", "submitted_by", "davee", "dave"),
    ("schedules", "project", "visoin", "vision"),
    ("templates", "project", "visoin", "vision"),
    ("projects", "department", "reserch", "research"),
    ("members", "project", "visoin", "vision"),
    ("members", "department", "reserch", "research"),
    ("members", "user", "davee", "dave"),
    ("tokens", "user", "davee", "dave"),
    ("quotas", "pool", "loca", "local"),
    ("quotas", "project", "visoin", "vision"),
    ("quotas", "department", "reserch", "research"),
    ("nodes", "pool", "loca", "local"),
    ("pods", "node", "local-00", "local-0"),
    ("events", "project", "visoin", "vision"),
    ("audit", "actor", "davee", "dave"),
    ("audit", "project", "visoin", "vision"),
    ("audit", "department", "reserch", "research"),
    ("evictions", "pool", "loca", "local"),
    ("evictions", "project", "visoin", "vision"),
    ("evictions", "preemptor", "visoin", "vision"),
    ("evictions", "workload", "trian", "train"),
    ("evictions/matrix", "preemptor", "visoin", "vision"),
    ("usage", "project", "visoin", "vision"),
    ("usage", "department", "reserch", "research"),
    ("usage", "user", "davee", "dave"),
    ("usage", "pool", "loca", "local"),
    ("utilization", "pool", "loca", "local"),
    ("utilization/nodes", "pool", "loca", "local"),
    ("utilization/workloads", "project", "visoin", "vision"),
    ("utilization/workloads", "pool", "loca", "local"),
]
# (path, parameter, misspelled word, correct word)
WORDS = [
    ("workloads", "reason", "Backof", "Backoff"),
    ("audit", "action", "opn_shell", "open_shell"),
    ("audit", "object_type", "quotas", "quota"),
    ("events", "kind", "submited", "submitted"),
    ("node-pools/local/history", "kind", "autoscal", "autoscale"),
]
HIDDEN = {"project": "speech", "department": "product", "user": "grace", "actor": "grace"}
HIDDEN |= {"submitted_by": "grace", "preemptor": "speech", "workload": "hidden"}


@pytest.fixture
def objects(cast: Cast) -> Cast:
    make.node(cast.pool)
    make.workload(cast.vision, "train", by=cast.dave.user)
    make.workload(cast.speech, "hidden", by=cast.grace.user)
    return cast


def problem(answer: Any) -> dict[str, str]:
    assert answer.status_code == 422, answer.content
    [error] = answer.json()["errors"]
    return dict(error)


@pytest.mark.parametrize(("path", "parameter", "typed", "meant"), FILTERS)
def test_unknown_name_in_a_filter_is_rejected_with_the_nearest_visible_name(
    objects: Cast, dave: Caller, path: str, parameter: str, typed: str, meant: str
) -> None:
    assert dave.get(path, **{parameter: meant}).status_code == 200
    assert problem(dave.get(path, **{parameter: typed})) == {
        "path": parameter, "message": "does not exist", "received": repr(typed),
        "allowed": f"Did you mean `{meant}`?",
    }  # fmt: skip


@pytest.mark.parametrize(("path", "parameter", "typed", "meant"), WORDS)
def test_unknown_filter_value_is_rejected_with_the_nearest_valid_value(
    objects: Cast, dave: Caller, path: str, parameter: str, typed: str, meant: str
) -> None:
    assert dave.get(path, **{parameter: meant}).status_code == 200
    assert problem(dave.get(path, **{parameter: typed})) == {
        "path": parameter, "message": "is not an allowed value", "received": repr(typed),
        "allowed": f"Did you mean `{meant}`?",
    }  # fmt: skip


def test_every_pending_reason_is_an_allowed_filter() -> None:
    assert REASONS[: len(Reason)] == tuple(Reason)


def test_every_channel_audit_action_is_an_allowed_filter() -> None:
    actions = {f"{verb}_{use.noun}" for verb in ("open", "close") for use in USES.values()}
    assert actions <= set(ACTIONS)


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("path", "parameter"), [(path, name) for path, name, *_ in FILTERS if name in HIDDEN]
)
def test_hidden_and_missing_objects_cause_the_same_error(
    objects: Cast, dave: Caller, path: str, parameter: str
) -> None:
    hidden = HIDDEN[parameter]
    rejection = problem(dave.get(path, **{parameter: hidden}))
    assert hidden not in rejection["allowed"]
    missing = problem(dave.get(path, **{parameter: "z" * len(hidden)}))
    nearest_or_list = {rejection["allowed"], missing["allowed"]}
    assert len(nearest_or_list) == 1 or any("Did you mean" in text for text in nearest_or_list)
    assert {**rejection, "received": "", "allowed": ""} == {**missing, "received": "", "allowed": ""}


@pytest.mark.heavy
def test_unknown_id_in_a_filter_is_rejected(objects: Cast, dave: Caller) -> None:
    hidden = objects.speech.workloads.get()
    for path, name, noun in (("events", "workload", "a workload"), ("pods", "workload", "a workload")):
        for typed in (str(uuid.uuid4()), str(hidden.pk)):
            rejection = problem(dave.get(path, **{name: typed}))
            assert (rejection["path"], rejection["allowed"]) == (name, f"the ID of {noun} that you can see")
    assert problem(dave.get("workloads", array=str(uuid.uuid4())))["path"] == "array"


@pytest.mark.heavy
def test_error_lists_valid_names_only_if_there_are_few(objects: Cast, dave: Caller, alice: Caller) -> None:
    assert problem(dave.get("workloads", project="zzz"))["allowed"] == "vision"
    for number in range(9):
        make.pool(f"pool-{number}")
    assert problem(alice.get("nodes", pool="zzz"))["allowed"] == "a node pool that you can see"


def test_filter_error_for_a_user_without_a_role_lists_no_names(objects: Cast, frank: Caller) -> None:
    for path, parameter, typed, meant in FILTERS:
        for text in (typed, meant):
            rejection = problem(frank.get(path, **{parameter: text}))
            nouns = ("project", "department", "node", "node pool", "workload", "workload or project")
            assert rejection["allowed"] in ("frank", *(f"a {noun} that you can see" for noun in nouns)), path


@pytest.mark.heavy
def test_every_unknown_name_in_a_request_is_reported(objects: Cast, dave: Caller) -> None:
    errors = dave.get("workloads", project="visoin", pool="loca").json()["errors"]
    assert [error["path"] for error in errors] == ["project", "pool"]


@pytest.mark.heavy
def test_history_can_be_filtered_by_a_deleted_project_or_pool(
    objects: Cast, alice: Caller, bob: Caller, carol: Caller
) -> None:
    cast = objects
    old = make.pool("old")
    victim, preemptor = cast.speech.workloads.get(), cast.vision.workloads.get()
    make.eviction(victim, preemptor, old)
    tenants.edit_project(actor=cast.bob, project=cast.speech, changes={"title": "Speech"})
    UsageHour.objects.create(
        hour=make.ago(hours=3).replace(minute=0, second=0, microsecond=0), pool_id=old.pk, pool_name="old",
        project_id=cast.speech.pk, project_name="speech", department_id=cast.research.pk,
        department_name="research", user_name="gone", gpu_milli_seconds=3_600_000,
    )  # fmt: skip
    victim.delete()
    old.delete()
    tenants.delete_project(actor=cast.bob, project=cast.speech)

    assert len(alice.get("evictions", project="speech", pool="old", workload="hidden").json()["items"]) == 1
    for caller in (alice, bob):
        actions = [row["action"] for row in caller.get("audit", project="speech").json()["items"]]
        assert actions == ["delete", "edit"]
        for name, value in (("project", "speech"), ("pool", "old"), ("user", "gone")):
            assert caller.get("usage", **{name: value}).json()["total"]["gpu_hours"] == 1, name
    assert problem(carol.get("usage", project="speech"))["allowed"] == "vision"
    assert problem(carol.get("audit", project="speech"))["allowed"] == "vision"
    assert problem(alice.get("workloads", project="speech"))["path"] == "project"
