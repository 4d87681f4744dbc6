"""Tests for suspending and resuming arrays, and for changing how many of their tasks may run at once."""

from typing import Any

import pytest

from projects.models import Audit, Workload
from tests.api.arrays.test_arrays import counts, problem, submit
from tests.api.conftest import Caller


def actions(array: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    rows = Audit.objects.filter(object_type="workloadarray", object_id=array["id"]).order_by("id")
    return [(row.action, row.before, row.after) for row in rows][1:]


def test_tasks_are_suspended_and_resumed(dave: Caller) -> None:
    array = submit(dave, array={"tasks": 6, "max_running": 2})
    path = f"arrays/{array['id']}"
    some = {"indexes": ["0-1"]}
    assert dave("POST", f"{path}/suspend", some, dry_run="true").json()["changed"] == 2
    result = dave.post(f"{path}/suspend", some).json()
    assert (result["changed"], counts(result["array"])) == (2, {"held": 2, "pending": 2, "suspended": 2})
    assert dave.post(f"{path}/suspend", some).json()["changed"] == 0, "already suspended"
    result = dave.post(f"{path}/resume", {"indexes": [0]}).json()
    assert (result["changed"], counts(result["array"])) == (1, {"held": 3, "pending": 2, "suspended": 1})
    result = dave.post(f"{path}/suspend").json()
    assert (result["changed"], counts(result["array"])) == (5, {"suspended": 6})
    assert result["array"]["state"] == "active"
    result = dave.post(f"{path}/resume").json()
    assert (result["changed"], counts(result["array"])) == (6, {"held": 4, "pending": 2})
    released = Workload.objects.filter(array=array["id"], held=False).order_by("array_index")
    assert [task.array_index for task in released] == [0, 1]
    assert [(action, after) for action, _, after in actions(array)] == [
        ("suspend", {"tasks": 2, "indexes": "0-1"}),
        ("resume", {"tasks": 1, "indexes": "0"}),
        ("suspend", {"tasks": 5, "indexes": "0,2-5"}),
        ("resume", {"tasks": 6, "indexes": "0-5"}),
    ]
    answer = dave.post(f"{path}/suspend", {"indexes": [6]})
    assert (answer.status_code, problem(answer)) == (422, ("indexes", "names a task that does not exist"))


@pytest.mark.heavy
def test_suspended_array_can_be_cancelled(dave: Caller) -> None:
    array = submit(dave)
    path = f"arrays/{array['id']}"
    dave.post(f"{path}/suspend")
    result = dave.post(f"{path}/cancel").json()
    assert (result["changed"], result["array"]["state"]) == (3, "cancelled")
    assert dave.post(f"{path}/suspend").json()["changed"] == 0
    assert dave.post(f"{path}/resume").json()["changed"] == 0


def test_max_running_can_be_changed_while_an_array_is_active(dave: Caller) -> None:
    array = submit(dave, array={"tasks": 10, "max_running": 2})
    path = f"arrays/{array['id']}"
    for limit, expected in ((5, {"held": 5, "pending": 5}), (1, {"held": 9, "pending": 1})):
        answer = dave("PATCH", path, {"max_running": limit})
        assert (answer.status_code, answer.json()["max_running"]) == (200, limit)
        assert counts(answer.json()) == expected
        assert answer.json()["spec"]["array"] == {"tasks": 10, "max_running": limit}
    held = Workload.objects.filter(array=array["id"], held=True)
    assert set(held.values_list("reason", flat=True)) == {"WaitingForEarlierTasks"}
    assert Workload.objects.get(array=array["id"], held=False).array_index == 0, "the last tasks are held"
    unlimited = dave("PATCH", path, {"max_running": None}).json()
    assert (counts(unlimited), unlimited["spec"]["array"]) == ({"pending": 10}, {"tasks": 10})
    assert dave("PATCH", path, {"max_running": None}).json()["max_running"] is None, "idempotent"
    assert actions(array) == [
        ("edit", {"max_running": 2}, {"max_running": 5}),
        ("edit", {"max_running": 5}, {"max_running": 1}),
        ("edit", {"max_running": 1}, {"max_running": None}),
    ]


@pytest.mark.heavy
def test_invalid_change_to_max_running_is_rejected(carol: Caller, dave: Caller) -> None:
    array = submit(dave, array={"tasks": 3, "max_running": 1})
    path = f"arrays/{array['id']}"
    for body, key in (({"max_running": 0}, "max_running"), ({}, "max_running"), ({"tasks": 5}, "tasks")):
        answer = dave("PATCH", path, body)
        assert answer.status_code == 422
        assert key in [error["path"] for error in answer.json()["errors"]]
    other = submit(carol, name="other")
    assert dave("PATCH", f"arrays/{other['id']}", {"max_running": 2}).status_code == 403
    dave.post(f"{path}/cancel")
    answer = dave("PATCH", path, {"max_running": 2})
    assert (answer.status_code, answer.json()["detail"]) == (
        409, "This array has ended (cancelled). Submit a new one.",
    )  # fmt: skip
