"""Tests for workload arrays over REST."""

from typing import Any

import pytest
from django.utils import timezone

from projects.models import Audit, Event, Membership, ProjectSecret, Workload, WorkloadArray, WorkloadRole
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast, training
from tests.support.present import present

PATH = "arrays"
# Token with roles, savepoint, projects, quotas, pools, array, its names, tasks, release, audit, counts.
STATEMENTS = 11


def document(name: str = "sweep", **changes: Any) -> dict[str, Any]:
    return {**training(name, project="vision"), "array": {"tasks": 3}, **changes}


def submit(caller: Caller, **changes: Any) -> dict[str, Any]:
    answer = caller.post(PATH, document(**changes))
    assert answer.status_code == 201, answer.json()
    return dict(answer.json())


def problem(answer: Any) -> tuple[str, str]:
    (error,) = answer.json()["errors"]
    return error["path"], error["message"]


def counts(array: dict[str, Any]) -> dict[str, int]:
    return {name: value for name, value in array["counts"].items() if value}


def test_submission_stores_a_workload_with_a_role_and_an_event_for_each_task(dave: Caller) -> None:
    array = submit(dave, array={"tasks": 150, "max_running": 50})
    assert (array["state"], array["tasks"], array["max_running"]) == ("active", 150, 50)
    assert counts(array) == {"held": 100, "pending": 50}
    assert array["spec"]["array"] == {"tasks": 150, "max_running": 50}
    assert (WorkloadRole.objects.count(), Event.objects.filter(kind="submitted").count()) == (150, 150)
    (entry,) = Audit.objects.filter(action="submit")
    assert (entry.object_type, entry.object_id) == ("workloadarray", array["id"])
    assert present(entry.after)["tasks"] == 150
    assert dave.get(f"arrays/{array['id']}").json() == {
        name: value for name, value in array.items() if name != "warnings"
    }


def test_each_task_is_a_workload_with_its_index_and_parameters(dave: Caller) -> None:
    array = submit(dave, env={"SEED": "1"}, array={"values": [{"LR": 0.1}, {"LR": 0.2, "STEPS": 5}]})
    rows = dave.get("workloads", array=array["id"], sort="name").json()["items"]
    assert [(row["name"], row["array"]["index"], row["array"]["attempt"]) for row in rows] == [
        ("sweep-0", 0, 1), ("sweep-1", 1, 1),
    ]  # fmt: skip
    spec = dave.get(f"workloads/{rows[1]['id']}").json()["spec"]
    assert spec["env"] == {"SEED": "1", "LR": "0.2", "STEPS": "5"}
    assert "array" not in spec


def test_task_indexes_select_combinations_of_a_matrix(dave: Caller) -> None:
    array = submit(dave, array={"matrix": {"LR": [0.1, 0.2], "SEED": [1, 2]}, "tasks": ["1-2"]})
    assert array["tasks"] == 2
    rows = dave.get("workloads", array=array["id"], sort="name").json()["items"]
    specs = [dave.get(f"workloads/{row['id']}").json()["spec"] for row in rows]
    assert [(row["name"], spec["env"]) for row, spec in zip(rows, specs, strict=True)] == [
        ("sweep-1", {"LR": "0.1", "SEED": "2"}), ("sweep-2", {"LR": "0.2", "SEED": "1"}),
    ]  # fmt: skip


def test_workload_list_can_include_or_exclude_array_tasks(dave: Caller) -> None:
    dave.post("workloads", training("alone", project="vision"))
    submit(dave)
    names = {
        flag: [row["name"] for row in dave.get("workloads", in_array=flag, sort="name").json()["items"]]
        for flag in ("true", "false")
    }
    assert names == {"true": ["sweep-0", "sweep-1", "sweep-2"], "false": ["alone"]}
    (array,) = dave.get(PATH).json()["items"]
    assert (array["name"], array["submitted_by"]) == ("sweep", "dave")
    assert dave.get(PATH, state="completed").json()["items"] == []
    assert dave.get(PATH, project="vision", submitted_by="dave", search="WEE").json()["items"] == [array]


@pytest.mark.parametrize("key", ["project", "state", "submitted_by", "search"])
def test_array_filter_excludes_other_arrays(alice: Caller, dave: Caller, key: str) -> None:
    submit(dave)
    other = {"project": "ads", "state": "failed", "submitted_by": "erin", "search": "x"}[key]
    assert alice.get(PATH, **{key: other}).json()["items"] == []


@pytest.mark.parametrize(
    ("section", "path", "message"),
    [
        ({}, "array", "needs one source of tasks"),
        ({"tasks": 2, "values": ["a"]}, "array", "needs one source of tasks"),
        ({"values": ["a"], "matrix": {"A": [1]}}, "array", "needs one source of tasks"),
        ({"tasks": [1, 6], "values": ["a"]}, "array.tasks", "selects a task that values does not define"),
        ({"tasks": 0}, "array.tasks", "is too small"),
        ({"tasks": 10_001}, "array.tasks", "is too large"),
        ({"tasks": ["0-10000"]}, "array.tasks", "has too many tasks"),
        ({"tasks": [1, "9-5"]}, "array.tasks[1]", "is not a valid index or range"),
        ({"tasks": [True]}, "array.tasks[0]", "is not a valid index or range"),
        ({"values": [{"A B": 1}]}, "array.values[0].'A B'", "is not a valid variable name"),
        ({"values": [None]}, "array.values[0]", "is not a valid parameter value"),
        ({"values": [{"RANK": 1}]}, "array.values", "names a variable that Berth sets"),
        ({"values": [{"BERTH_X": 1}]}, "array.values", "names a variable that Berth sets"),
        ({"matrix": {"SEED": [1]}}, "array.matrix", "names a variable that env sets"),
        ({"matrix": {"TOKEN": [1]}}, "array.matrix", "names the variable of a secret"),
        ({"matrix": {"A": []}}, "array.matrix.A", "is empty"),
        ({"matrix": {name: list(range(101)) for name in "AB"}}, "array.matrix", "has too many tasks"),
        ({"tasks": 2, "max_running": 0}, "array.max_running", "is too small"),
        ({"tasks": 2, "max-running": 1}, "array.max-running", "unknown key"),
        ("0-9", "array", "must be a mapping, not text"),
    ],
)
def test_error_names_the_invalid_array_key(
    cast: Cast, dave: Caller, section: Any, path: str, message: str
) -> None:
    sealed, at = "x", timezone.now()
    ProjectSecret.objects.create(
        project=cast.vision, name="token", sealed=sealed, created_at=at, updated_at=at
    )
    sent = document(array=section, env={"SEED": "1"}, secrets=[{"name": "token", "env": "TOKEN"}])
    answer = dave.post(PATH, sent)
    assert (answer.status_code, problem(answer)) == (422, (path, message))
    assert not WorkloadArray.objects.exists()


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"kind": "interactive"}, "array"),
        ({"name": "a" * 62}, "name"),
        ({"notifications": [{"to": "ops@example.org", "on": ["started"]}]}, "notifications[0].on"),
        ({"array": None}, "array"),
    ],
)
def test_document_unsuitable_for_an_array_is_rejected(
    dave: Caller, changes: dict[str, Any], path: str
) -> None:
    answer = dave.post(PATH, document(**changes))
    assert (answer.status_code, problem(answer)[0]) == (422, path)


def test_array_is_rejected_if_its_documents_exceed_the_total_size_limit(dave: Caller) -> None:
    answer = dave.post(PATH, document(command="x" * 30_000, array={"tasks": 10_000}))
    assert (answer.status_code, problem(answer)) == (422, ("array", "is too large"))


@pytest.mark.heavy
def test_array_is_rejected_where_a_single_workload_is_required(cast: Cast, dave: Caller) -> None:
    answer = dave.post("workloads", document())
    assert (answer.status_code, problem(answer)) == (422, ("array", "creates several workloads"))
    (item,) = dave.post("workloads:batch", {"items": [document()]}).json()["items"]
    assert item["error"]["errors"][0]["path"] == "items[0].array"
    assert dave("POST", "workloads", document(), dry_run="true").json()["outcome"] == "invalid"
    assert not Workload.objects.exists()


def test_array_and_task_names_are_unique_among_live_workloads(dave: Caller) -> None:
    submit(dave)
    for name in ("sweep", "sweep-1"):
        answer = dave.post("workloads", training(name, project="vision"))
        assert (answer.status_code, problem(answer)[0]) == (409, "name")
    assert dave.post(PATH, document()).status_code == 409
    dave.post("workloads", training("other-2", project="vision"))
    answer = dave.post(PATH, document("other"))
    assert (answer.status_code, problem(answer)) == (
        409,
        ("name", "gives a task the name other-2, which is in use"),
    )
    assert WorkloadArray.objects.count() == 1
    dave.post("workloads", training("third", project="vision"))
    assert dave.post(PATH, document("third")).status_code == 409


def test_repeated_submission_is_stored_once(dave: Caller) -> None:
    sent = [dave.post(PATH, document(), Idempotency_Key="key") for _ in range(2)]
    assert sent[0].json() == sent[1].json()
    assert sent[1]["Idempotency-Replayed"] == "true"
    assert (WorkloadArray.objects.count(), Workload.objects.count()) == (1, 3)


@pytest.mark.heavy
def test_tasks_count_against_the_rate_limit(dave: Caller) -> None:
    before = int(dave.post(PATH, document("one"))["RateLimit-Remaining"])
    after = int(dave.post(PATH, document("many", array={"tasks": 500}))["RateLimit-Remaining"])
    assert before - after == 10


def test_dry_run_counts_the_tasks_that_would_start(dave: Caller, cast: Cast) -> None:
    make.node(cast.pool, gpus=2)
    for owner in (cast.research, cast.vision):
        make.quota(owner, cast.pool, 8)
    one_gpu = [{"name": "worker", "gpu": 1}]
    result = dave("POST", PATH, document(roles=one_gpu, array={"tasks": 30}), dry_run="true").json()
    assert result["first_task"]["outcome"] == "would_start"
    assert [result[key] for key in ("tasks", "would_start", "would_evict", "would_queue")] == [30, 2, 0, 28]


@pytest.mark.heavy
def test_dry_run_predicts_the_first_task_and_stores_nothing(dave: Caller) -> None:
    result = dave("POST", PATH, document(array={"tasks": ["7-9"], "max_running": 2}), dry_run="true").json()
    assert (result["tasks"], result["max_running"]) == (3, 2)
    assert result["first_task"]["workload"]["name"] == "sweep-7"
    assert result["first_task"]["outcome"] == "would_stay_pending"
    assert [result[key] for key in ("would_start", "would_evict", "would_queue")] == [0, 0, 3]
    invalid = dave("POST", PATH, document(array={}), dry_run="true").json()
    assert (invalid["tasks"], invalid["first_task"]["outcome"]) == (None, "invalid")
    submit(dave)
    assert dave("POST", PATH, document(), dry_run="true").status_code == 409
    assert Workload.objects.count() == 3


def test_cancel_and_retry_return_the_changed_tasks(dave: Caller) -> None:
    array = submit(dave, array={"tasks": 10, "max_running": 2})
    path = f"arrays/{array['id']}"
    assert dave("POST", f"{path}/cancel", {"indexes": [0, "7-9"]}, dry_run="true").json()["changed"] == 4
    result = dave.post(f"{path}/cancel", {"indexes": [0, "7-9"]}).json()
    assert (result["changed"], counts(result["array"])) == (4, {"cancelled": 4, "held": 4, "pending": 2})
    answer = dave.post(f"{path}/retry", {"indexes": [1]})
    assert (answer.status_code, answer.json()["detail"]) == (
        409, "Task 1 (pending) has not ended. Cancel or exclude unfinished tasks.",
    )  # fmt: skip
    assert dave.post(f"{path}/retry", {"indexes": ["7-8"]}).json()["changed"] == 2
    assert dave.post(f"{path}/retry").json()["changed"] == 0, "no task has failed"
    attempts = {
        flag: [
            (row["array"]["index"], row["array"]["attempt"])
            for row in dave.get("workloads", array=array["id"], superseded=flag, search="sweep-7").json()[
                "items"
            ]
        ]
        for flag in ("true", "false")
    }
    assert attempts == {"true": [(7, 1)], "false": [(7, 2)]}
    for action in ("cancel", "retry"):
        answer = dave.post(f"{path}/{action}", {"indexes": [10]})
        assert (answer.status_code, problem(answer)) == (422, ("indexes", "names a task that does not exist"))
    result = dave.post(f"{path}/cancel").json()
    assert (result["changed"], result["array"]["state"]) == (8, "cancelled")
    entries = Audit.objects.filter(object_type="workloadarray").order_by("id")
    assert [(row.action, (row.after or {}).get("indexes")) for row in entries] == [
        ("submit", None), ("cancel", "0,7-9"), ("retry", "7-8"), ("cancel", "1-8"),
    ]  # fmt: skip


def test_deleting_an_ended_array_deletes_all_its_attempts(dave: Caller) -> None:
    array = submit(dave)
    path = f"arrays/{array['id']}"
    assert dave("DELETE", path).status_code == 409
    dave.post(f"{path}/cancel")
    dave.post(f"{path}/retry", {"indexes": [1]})
    dave.post(f"{path}/cancel")
    assert Workload.objects.count() == 4
    assert dave("DELETE", path).status_code == 204
    assert not Workload.objects.exists()
    assert not WorkloadArray.objects.exists()
    assert Event.objects.filter(kind="deleted").count() == 4


@pytest.mark.heavy
def test_retry_is_validated_like_a_submission(cast: Cast, dave: Caller) -> None:
    array = submit(dave)
    dave.post(f"arrays/{array['id']}/cancel")
    Membership.objects.filter(user=cast.dave.user).update(role="viewer")
    assert dave.post(f"arrays/{array['id']}/retry", {"indexes": [0]}).status_code == 403
    Membership.objects.filter(user=cast.dave.user).update(role="member")
    submit(dave)
    answer = dave.post(f"arrays/{array['id']}/retry", {"indexes": [0]})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert Workload.objects.filter(array=array["id"]).count() == 3


@pytest.mark.every_case
@pytest.mark.parametrize("action", ["cancel", "retry", "suspend", "resume"])
def test_another_member_cannot_change_an_array(carol: Caller, dave: Caller, action: str) -> None:
    array = submit(carol)
    assert dave.post(f"arrays/{array['id']}/{action}").status_code == 403


@pytest.mark.parametrize("size", [10, 1000])
def test_submission_query_count_is_independent_of_the_number_of_tasks(
    dave: Caller, django_assert_num_queries: Any, size: int
) -> None:
    dave.get("whoami")  # records when the token was last used
    with django_assert_num_queries(STATEMENTS):
        submit(dave, array={"tasks": size})


@pytest.mark.parametrize("action", ["cancel", "retry", "suspend", "resume"])
def test_array_change_query_count_is_independent_of_the_number_of_tasks(
    dave: Caller, action: str, django_assert_max_num_queries: Any
) -> None:
    numbers = []
    for size in (2, 200):
        array = submit(dave, name=f"sweep-of-{size}", array={"tasks": size})
        if action in ("retry", "resume"):
            dave.post(f"arrays/{array['id']}/{'cancel' if action == 'retry' else 'suspend'}")
        with django_assert_max_num_queries(100) as captured:
            body = {"indexes": [f"0-{size - 1}"]}
            assert dave.post(f"arrays/{array['id']}/{action}", body).json()["changed"] == size
        numbers.append(len(captured))
    assert numbers[0] == numbers[1]


@pytest.mark.heavy
@pytest.mark.parametrize("step", ["cancel", "retry"])
def test_request_for_too_many_array_tasks_is_rejected(dave: Caller, step: str) -> None:
    array = submit(dave)
    answer = dave.post(f"arrays/{array['id']}/{step}", {"indexes": ["0-999999"] * 9_999})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["allowed"] == "at most 10000 indexes"


@pytest.mark.heavy
def test_retry_is_rejected_while_a_live_workload_uses_the_arrays_name(dave: Caller) -> None:
    array = submit(dave)
    Workload.objects.filter(array=array["id"]).update(phase="failed", ended_at=make.ago(minutes=1))
    WorkloadArray.objects.update(state="failed", ended_at=make.ago(minutes=1))
    assert dave.post("workloads", training("sweep", project="vision")).status_code == 201
    answer = dave.post(f"arrays/{array['id']}/retry", {})
    assert answer.status_code == 409 and "live workload named sweep" in answer.json()["detail"]
    assert WorkloadArray.objects.get().state == "failed"


@pytest.mark.heavy
def test_list_includes_costs_only_on_request(cast: Cast, dave: Caller) -> None:
    cast.pool.price_per_gpu_hour = 3600
    cast.pool.save()
    array = submit(dave)
    task = Workload.objects.filter(array=array["id"]).first()
    assert task is not None
    pod = make.place(task, make.node(cast.pool), [0])
    pod.allocation.bound_at = make.ago(seconds=10)
    pod.allocation.save()
    assert dave.get("arrays").json()["items"][0]["cost"] is None
    listed = dave.get("arrays", costs="true").json()["items"][0]["cost"]
    assert listed["currency"] == "USD" and float(listed["amount"]) >= 10
    assert float(dave.get(f"arrays/{array['id']}").json()["cost"]["amount"]) >= 10
