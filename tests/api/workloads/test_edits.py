"""Tests for edits of pending and suspended workloads."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pools.models import NodePool
from projects.models import Audit, Event, Phase, Workload
from tests.api.conftest import Caller
from tests.cast import Cast, training
from tests.support.present import present

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def pending(cast: Cast, dave: Caller) -> str:
    document = training(project="vision", priority=50, max_runtime=3600, labels={"team": "a", "stage": "b"})
    answer = dave.post("workloads", document)
    assert answer.status_code == 201, answer.json()
    return str(answer.json()["id"])


def patch(caller: Caller, workload: str, changes: Any, **headers: str) -> Any:
    return caller("PATCH", f"workloads/{workload}", changes, headers=headers)


def problems(answer: Any) -> dict[str, str]:
    assert answer.status_code == 422, answer.json()
    return {problem["path"]: problem["message"] for problem in answer.json()["errors"]}


def test_edit_updates_document_and_columns_and_is_audited(dave: Caller, pending: str) -> None:
    changes = {
        "priority": "high",
        "labels": {"stage": None, "owner": "me"},
        "deadline": "2099-01-01T00:00:00Z",
    }
    answer = patch(dave, pending, changes)
    assert answer.status_code == 200, answer.json()
    edited = answer.json()
    assert edited["priority"] == edited["spec"]["priority"] > 50
    assert edited["labels"] == edited["spec"]["labels"] == {"team": "a", "owner": "me"}
    paths = [change["path"] for change in edited["changes"]]
    assert paths == ["deadline", "labels.owner", "labels.stage", "priority"]
    assert edited["increases"] == []
    row = Workload.objects.get(pk=pending)
    assert (row.deadline is not None, row.edits, row.requeued_at) == (True, 1, None)
    event = Event.objects.get(workload_id=pending, kind="edited")
    assert event.message.startswith("Edited by dave: deadline: not set -> 2099-01-01")
    assert "labels.stage: b -> not set; priority: 50 -> " in event.message
    entry = Audit.objects.get(object_id=pending, action="edit")
    assert present(entry.before)["priority"] == 50
    assert present(entry.after)["priority"] == edited["priority"]
    assert dave.get(f"workloads/{pending}").json()["spec"] == edited["spec"]


@pytest.mark.heavy
def test_null_in_a_patch_removes_the_key(dave: Caller, pending: str) -> None:
    answer = patch(dave, pending, {"max_runtime": None}).json()
    assert "max_runtime" not in answer["spec"]
    assert Workload.objects.get(pk=pending).max_runtime is None
    assert answer["increases"] == ["unlimited runtime instead of 1h"]


@pytest.mark.heavy
def test_edit_to_a_larger_request_resets_the_queue_time(dave: Caller, pending: str) -> None:
    answer = patch(dave, pending, {"roles": [{"name": "worker", "replicas": 3, "gpu": 1, "cpu": 2}]}).json()
    assert answer["increases"] == ["3 GPUs instead of 2", "6 CPUs instead of none"]
    row = Workload.objects.get(pk=pending)
    assert row.requeued_at is not None
    assert row.requeued_at > row.submitted_at
    assert row.gpu_milli_min == 3000
    assert answer["pods"]["maximum"] == 3
    assert (
        "so it is queued as if submitted now" in Event.objects.get(workload_id=pending, kind="edited").message
    )


def test_edit_to_a_smaller_request_preserves_the_queue_time(dave: Caller, pending: str) -> None:
    answer = patch(dave, pending, {"roles": [{"name": "worker", "gpu": 0.5}], "max_runtime": 60}).json()
    assert answer["increases"] == []
    assert Workload.objects.get(pk=pending).requeued_at is None


@pytest.mark.heavy
def test_edit_preview_stores_nothing(dave: Caller, pending: str) -> None:
    before = Workload.objects.values().get(pk=pending)
    answer = dave(
        "PATCH", f"workloads/{pending}", {"priority": 70, "max_runtime": 7200}, dry_run="true"
    ).json()
    assert [change["path"] for change in answer["changes"]] == ["max_runtime", "priority"]
    assert answer["increases"] == ["a max runtime of 2h instead of 1h"]
    assert answer["priority"] == 50
    assert Workload.objects.values().get(pk=pending) == before
    assert not Event.objects.filter(workload_id=pending, kind="edited").exists()


@pytest.mark.heavy
def test_edit_without_changes_stores_nothing(dave: Caller, pending: str) -> None:
    assert patch(dave, pending, {"priority": 50}).json()["changes"] == []
    assert Workload.objects.get(pk=pending).edits == 0


def test_stale_version_is_rejected(dave: Caller, pending: str) -> None:
    read = dave.get(f"workloads/{pending}")
    assert read["ETag"] == f'"{read.json()["version"]}"'
    assert patch(dave, pending, {"priority": 60}, If_Match=read["ETag"]).status_code == 200
    answer = patch(dave, pending, {"priority": 70}, If_Match=read["ETag"])
    assert answer.status_code == 412
    assert Workload.objects.get(pk=pending).priority == 60


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"name": "other"}, "name", "cannot be edited"),
        ({"project": "speech"}, "project", "cannot be edited"),
        ({"kind": "elastic"}, "kind", "cannot be edited"),
        ({"array": {"tasks": 3}}, "array", "cannot be edited"),
        ({"priority": 5000}, "priority", ""),
        ({"pools": ["nowhere"]}, "pools[0]", "does not exist"),
        ({"deadline": "2001-01-01T00:00:00Z"}, "deadline", "has passed"),
        ({"prioritty": 60}, "prioritty", "unknown key"),
        ({"roles": None}, "roles", ""),
        ({"labels": 3}, "labels", ""),
    ],
)
def test_invalid_edit_is_rejected(
    dave: Caller, pending: str, changes: dict[str, Any], path: str, message: str
) -> None:
    before = Workload.objects.values().get(pk=pending)
    errors = problems(patch(dave, pending, changes))
    assert path in errors, errors
    assert message in errors[path]
    assert Workload.objects.values().get(pk=pending) == before


@pytest.mark.parametrize(
    ("phase", "status", "words"),
    [
        (Phase.SUSPENDED, 200, ""),
        (Phase.RESERVED, 409, "GPUs are being freed for this workload"),
        (Phase.RUNNING, 409, "Suspend it to edit it"),
        (Phase.COMPLETED, 409, "has ended"),
    ],
)
def test_only_pending_and_suspended_workloads_are_editable(
    dave: Caller, pending: str, phase: str, status: int, words: str
) -> None:
    ended = {"ended_at": "2026-01-01T00:00:00Z"} if phase == Phase.COMPLETED else {}
    Workload.objects.filter(pk=pending).update(phase=phase, **ended)
    answer = patch(dave, pending, {"priority": 60})
    assert answer.status_code == status
    assert words in answer.json().get("detail", "")


@pytest.mark.heavy
def test_task_of_an_array_is_not_editable(dave: Caller, cast: Cast) -> None:
    array = dave.post("arrays", training("sweep", project="vision", array={"tasks": 2})).json()
    (task, *_) = dave.get("workloads", array=array["id"]).json()["items"]
    answer = patch(dave, task["id"], {"priority": 60})
    assert answer.status_code == 409
    assert "task of an array" in answer.json()["detail"]


def test_other_members_and_viewers_cannot_edit_a_workload(erin: Caller, caller: Any, pending: str) -> None:
    assert patch(erin, pending, {"priority": 60}).status_code == 403
    assert patch(caller("grace"), pending, {"priority": 60}).status_code == 404
    assert patch(caller("dave", "read"), pending, {"priority": 60}).status_code == 403
    assert Workload.objects.get(pk=pending).priority == 50


def test_audit_entry_of_an_edit_is_short_and_hides_environment_variables(dave: Caller, pending: str) -> None:
    long_command = "python train.py " + "x" * 5000
    env = {f"NAME_{n}": "hunter2" for n in range(50)}
    labels = {f"label-{n}": "x" for n in range(50)}
    answer = patch(dave, pending, {"env": env, "command": long_command, "labels": labels})
    assert len(answer.json()["changes"]) > 50
    event = Event.objects.get(workload_id=pending, kind="edited")
    entry = Audit.objects.get(object_id=pending, action="edit")
    records = f"{event.message} {event.data} {entry.before} {entry.after}"
    assert "hunter2" not in records
    assert "python train.py" in records
    assert "env changed" in event.message
    assert "more changes" in event.message
    assert len(records) < 5000


@pytest.mark.heavy
def test_audit_entry_hides_environment_variables_of_added_roles(dave: Caller, pending: str) -> None:
    roles = [{"name": "a", "env": {"PASSWORD": "hunter2"}}, {"name": "b"}]
    assert patch(dave, pending, {"roles": roles}).status_code == 200
    event = Event.objects.get(workload_id=pending, kind="edited")
    entry = Audit.objects.get(object_id=pending, action="edit")
    assert "roles changed" in event.message
    assert "hunter2" not in f"{event.message} {event.data} {entry.before} {entry.after}"


@pytest.mark.heavy
def test_edit_repairs_a_workload_with_an_unreadable_document(dave: Caller, pending: str) -> None:
    row = Workload.objects.get(pk=pending)
    Workload.objects.filter(pk=pending).update(spec={**row.spec, "oldkey": 1})
    assert "oldkey" in problems(patch(dave, pending, {"priority": 60}))
    answer = patch(dave, pending, {"priority": 60, "oldkey": None})
    assert answer.status_code == 200, answer.json()
    assert "oldkey" not in answer.json()["spec"]


@pytest.mark.heavy
def test_merge_patch_media_type_is_accepted(dave: Caller, pending: str) -> None:
    answer = dave("PATCH", f"workloads/{pending}", ("application/merge-patch+json", b'{"priority": 60}'))
    assert answer.json()["priority"] == 60


@pytest.mark.heavy
def test_burst_delay_of_an_edited_workload_starts_at_its_submission(dave: Caller, cast: Cast) -> None:
    NodePool.objects.create(name="cloud", provider="fake", runtime="fake", nodes_max=4, gpus_per_node=2)
    document = training("burst", project="vision", pools=["local", "cloud"], burst_after=600)
    workload = str(dave.post("workloads", document).json()["id"])
    Workload.objects.filter(pk=workload).update(pending_since=NOON)
    assert patch(dave, workload, {"priority": 60}).json()["warnings"] == []
