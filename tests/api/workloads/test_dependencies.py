"""Tests for the `after` section of workload documents over REST."""

from collections.abc import Callable
from typing import Any

import pytest

from projects.models import Phase, Workload, WorkloadArray
from projects.services import arrays, workloads
from projects.services.workloads.phase_transitions import change_phase
from tests.api.conftest import Caller
from tests.cast import Cast, training


def wait_for(*names: str, **more: str) -> list[dict[str, str]]:
    return [{"workload": name, **more} for name in names]


def document(name: str, *names: str, **more: str) -> dict[str, Any]:
    return training(name, project="vision", after=wait_for(*names, **more))


def submit(cast: Cast, name: str = "first", project: str = "vision", **changes: Any) -> Workload:
    values = training(name, project=project, **changes)
    return workloads.submit(actor=cast.alice, document=values)


def finish(workload: Workload, phase: str) -> None:
    expected = Phase.PENDING if phase != Phase.COMPLETED else Phase.RUNNING
    if phase == Phase.COMPLETED:
        Workload.objects.filter(pk=workload.pk).update(phase=Phase.RUNNING, run=1)
    at = workload.submitted_at
    assert change_phase(
        workload, expected=[expected], to=phase, reason="Test", message="", actor="test", now=at
    )


def problem(answer: Any) -> dict[str, str]:
    assert answer.status_code == 422, answer.content
    (rejection,) = answer.json()["errors"]
    return rejection


@pytest.mark.heavy
def test_error_for_the_old_depends_on_key_suggests_the_after_key(dave: Caller) -> None:
    body = training("second", project="vision", depends_on=["first", "other"])
    assert problem(dave.post("workloads", body)) == {
        "path": "depends_on",
        "message": "was replaced by after",
        "received": "",
        "allowed": "after: [{workload: first}, {workload: other}]",
    }


@pytest.mark.parametrize(
    ("section", "path", "message"),
    [
        ([{"workload": "a b"}], "after[0].workload", "is not a valid workload name"),
        ([{"workload": "a/b/c"}], "after[0].workload", "is not a valid workload name"),
        ([{"workload": "a", "state": "done"}], "after[0].state", "is not an allowed value"),
        ([{"workload": "a", "tasks": "same"}], "after[0].tasks", "needs an array"),
        ([{"workload": "second"}], "after[0].workload", "refers to the workload itself"),
        ([{"workload": "vision/second"}], "after[0].workload", "refers to the workload itself"),
        ([{"workload": "a"}, {"workload": "a", "state": "any"}], "after[1].workload", "is listed twice"),
        (["a"], "after[0]", "must be a mapping, not text"),
        ([{"state": "any"}], "after[0].workload", "is missing"),
    ],
)
def test_invalid_dependency_section_is_rejected(
    dave: Caller, section: list[Any], path: str, message: str
) -> None:
    rejection = problem(dave.post("workloads", training("second", project="vision", after=section)))
    assert (rejection["path"], rejection["message"]) == (path, message)


def test_error_names_the_workloads_of_a_dependency_cycle(cast: Cast, dave: Caller) -> None:
    assert dave.post("workloads", document("a", "b")).status_code == 201
    assert dave.post("workloads", document("b", "c")).status_code == 201
    rejection = problem(dave.post("workloads", document("c", "a")))
    assert (rejection["path"], rejection["message"]) == ("after", "forms a cycle")
    assert rejection["received"] == "vision/c -> vision/a -> vision/b -> vision/c"


@pytest.mark.heavy
def test_dependency_cycle_through_an_array_task_is_rejected(cast: Cast, dave: Caller) -> None:
    sweep = training("sweep", project="vision", array={"tasks": 3}, after=wait_for("report"))
    assert dave.post("arrays", sweep).status_code == 201
    rejection = problem(dave.post("workloads", document("report", "sweep-1")))
    assert rejection["received"] == "vision/report -> vision/sweep -> vision/report"


def test_dependency_cycle_error_does_not_reveal_a_hidden_project(
    cast: Cast, dave: Caller, bob: Caller
) -> None:
    submit(cast, "b", "speech", after=wait_for("c"))
    submit(cast, "c", "speech", after=wait_for("vision/a"))
    assert bob.post("workloads", document("e", "speech/b")).status_code == 201
    rejection = problem(bob.post("workloads", document("a", "speech/b")))
    assert rejection["received"] == "vision/a -> speech/b -> speech/c -> vision/a"
    rejection = problem(dave.post("workloads", document("a", "e")))
    assert "speech" not in rejection["received"] and rejection["message"] == "forms a cycle"


@pytest.mark.heavy
def test_array_cannot_wait_for_its_own_task(dave: Caller) -> None:
    sweep = training("sweep", project="vision", array={"tasks": 3}, after=wait_for("sweep-1"))
    assert problem(dave.post("arrays", sweep))["received"] == "vision/sweep -> vision/sweep"


@pytest.mark.heavy
def test_edit_is_rejected_only_while_it_would_create_a_dependency_cycle(cast: Cast, dave: Caller) -> None:
    first = dave.post("workloads", document("a", "b")).json()
    second = dave.post("workloads", training("b", project="vision")).json()
    patch = {"after": wait_for("a")}
    answer = dave("PATCH", f"workloads/{second['id']}", patch, headers={"If-Match": "*"})
    assert problem(answer)["received"] == "vision/b -> vision/a -> vision/b"
    free = dave("PATCH", f"workloads/{first['id']}", {"after": wait_for("c")}, headers={"If-Match": "*"})
    assert free.status_code == 200
    answer = dave("PATCH", f"workloads/{second['id']}", patch, headers={"If-Match": "*"})
    assert (answer.status_code, answer.json()["spec"]["after"]) == (200, wait_for("a"))


@pytest.mark.heavy
def test_batch_rejects_only_the_document_that_completes_a_dependency_cycle(dave: Caller) -> None:
    answer = dave.post("workloads:batch", {"items": [document("a", "b"), document("b", "a")]}).json()
    assert (answer["stored"], answer["rejected"]) == (1, 1)
    (rejection,) = answer["items"][1]["error"]["errors"]
    assert rejection["received"] == "vision/b -> vision/a -> vision/b"


@pytest.mark.parametrize(
    ("phase", "state", "message", "allowed"),
    [
        ("failed", "completed", "failed, so it can no longer complete", "failed or any"),
        ("completed", "failed", "completed, so it can no longer fail", "completed or any"),
        ("cancelled", "completed", "was cancelled, so it can no longer complete", "any"),
    ],
)
def test_dependency_on_a_workload_that_ended_in_the_wrong_state_is_rejected(
    cast: Cast, dave: Caller, phase: str, state: str, message: str, allowed: str
) -> None:
    finish(submit(cast), phase)
    rejection = problem(dave.post("workloads", document("second", "first", state=state)))
    assert (rejection["path"], rejection["message"]) == ("after[0].workload", message)
    assert rejection["allowed"] == f"a workload that has not ended, or state {allowed}"
    assert dave.post("workloads", document("second", "first", state="any")).status_code == 201


@pytest.mark.heavy
def test_batch_may_depend_on_a_failed_workload_that_it_resubmits(cast: Cast, dave: Caller) -> None:
    finish(submit(cast), "failed")
    items = [document("second", "first"), training("first", project="vision")]
    assert dave.post("workloads:batch", {"items": items}).json()["stored"] == 2


def test_hidden_and_missing_projects_cause_the_same_error(cast: Cast, dave: Caller, bob: Caller) -> None:
    submit(cast, "prepare", "speech")
    messages = {
        problem(dave.post("workloads", document("second", f"{project}/prepare")))["message"]
        for project in ("speech", "missing")
    }
    assert messages == {"names a project that does not exist"}
    assert bob.post("workloads", document("second", "speech/prepare")).status_code == 201


def test_dependency_statuses_are_hidden_from_users_who_cannot_see_the_project(
    cast: Cast, dave: Caller, bob: Caller
) -> None:
    awaited = submit(cast, "prepare", "speech")
    second = bob.post("workloads", document("second", "speech/prepare")).json()
    path = f"workloads/{second['id']}/dependencies"
    (visible,) = bob.get(path).json()["waits_for"]
    assert (visible["outcome"], visible["phase"], visible["id"]) == ("waiting", "pending", str(awaited.pk))
    (hidden,) = dave.get(path).json()["waits_for"]
    assert (hidden["outcome"], hidden["phase"], hidden["id"]) == ("hidden", None, None)


def test_dependents_in_hidden_projects_are_not_listed(cast: Cast, bob: Caller, dave: Caller) -> None:
    first = submit(cast)
    submit(cast, "own", after=wait_for("first"))
    submit(cast, "foreign", "speech", after=wait_for("vision/first", state="any"))
    path = f"workloads/{first.pk}/dependencies"
    assert [(row["project"], row["name"], row["state"]) for row in bob.get(path).json()["awaited_by"]] == [
        ("speech", "foreign", "any"),
        ("vision", "own", "completed"),
    ]
    assert [row["name"] for row in dave.get(path).json()["awaited_by"]] == ["own"]


@pytest.mark.heavy
def test_array_with_task_by_task_dependencies_is_listed_as_one_dependent(cast: Cast, dave: Caller) -> None:
    sweep = arrays.submit(
        actor=cast.dave, document=training("sweep", project="vision", array={"tasks": 3})
    ).array
    same = wait_for("sweep", tasks="same")
    answer = dave.post("arrays", training("eval", project="vision", array={"tasks": 3}, after=same))
    assert answer.status_code == 201
    (row,) = dave.get(f"arrays/{sweep.pk}/dependencies").json()["awaited_by"]
    assert (row["name"], row["is_array"], row["tasks"]) == ("eval", True, "same")
    (task,) = Workload.objects.filter(array__name="eval", array_index=2)
    assert task.spec["after"] == [{"workload": "sweep-2"}]
    (status,) = dave.get(f"workloads/{task.pk}/dependencies").json()["waits_for"]
    assert (status["name"], status["phase"]) == ("sweep-2", "pending")


@pytest.mark.heavy
def test_error_names_tasks_missing_from_the_other_array(cast: Cast, dave: Caller) -> None:
    arrays.submit(actor=cast.dave, document=training("sweep", project="vision", array={"tasks": 3}))
    same = wait_for("sweep", tasks="same")
    rejection = problem(
        dave.post("arrays", training("eval", project="vision", array={"tasks": 5}, after=same))
    )
    assert rejection["message"] == "refers to tasks that vision/sweep does not have"
    assert rejection["received"] == "3-4"
    assert WorkloadArray.objects.filter(name="eval").count() == 0


@pytest.mark.heavy
def test_tasks_key_is_rejected_for_a_dependency_on_a_single_workload(cast: Cast, dave: Caller) -> None:
    submit(cast)
    same = wait_for("first", tasks="same")
    rejection = problem(
        dave.post("arrays", training("eval", project="vision", array={"tasks": 2}, after=same))
    )
    assert (rejection["path"], rejection["message"]) == ("after[0].tasks", "needs an array")


def test_workload_with_an_unfinished_dependent_cannot_be_deleted(
    cast: Cast, dave: Caller, alice: Caller
) -> None:
    first = submit(cast)
    second = submit(cast, "second", after=wait_for("first"))
    finish(first, "completed")
    answer = alice("DELETE", f"workloads/{first.pk}")
    assert answer.status_code == 409
    assert "vision/second depends on vision/first" in answer.json()["detail"]
    workloads.cancel(actor=cast.alice, workload=second)
    assert alice("DELETE", f"workloads/{first.pk}").status_code == 204


@pytest.mark.heavy
def test_older_workload_with_the_same_name_can_be_deleted(cast: Cast, alice: Caller) -> None:
    older = submit(cast)
    finish(older, Phase.CANCELLED)
    newer = submit(cast)
    submit(cast, "second", after=wait_for("first", state="any"))
    assert alice("DELETE", f"workloads/{older.pk}").status_code == 204
    finish(newer, Phase.CANCELLED)
    assert alice("DELETE", f"workloads/{newer.pk}").status_code == 409


def test_dependencies_of_a_started_workload_cannot_be_edited(cast: Cast, dave: Caller) -> None:
    created = dave.post("workloads", training("first", project="vision")).json()
    Workload.objects.filter(pk=created["id"]).update(run=1)
    answer = dave(
        "PATCH", f"workloads/{created['id']}", {"after": wait_for("other")}, headers={"If-Match": "*"}
    )
    assert problem(answer)["path"] == "after"


@pytest.mark.heavy
@pytest.mark.parametrize("count", [1, 20])
def test_statement_count_does_not_depend_on_the_number_of_dependencies(
    cast: Cast, dave: Caller, count: int, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    submit(cast, "other", after=wait_for("more"))
    dave.get("whoami")
    names = [f"w{number}" for number in range(count)]
    with django_assert_max_num_queries(22):
        assert dave.post("workloads", document("second", *names)).status_code == 201
