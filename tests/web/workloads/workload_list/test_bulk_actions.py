"""Tests for actions on several workloads and arrays in the workload list."""

import re
from typing import Any

from projects.models import Workload, WorkloadArray
from projects.services import arrays
from tests import factories as make
from tests.cast import Cast, training
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}
KINDS = {"w": Workload, "a": WorkloadArray}


def create_three_workloads(cast: Cast) -> list[Workload]:
    mine = [make.workload(cast.vision, f"w{n}", by=cast.dave.user) for n in range(2)]
    return [*mine, make.workload(cast.vision, "carols", by=cast.carol.user)]


def array_of_two(cast: Cast, name: str, *phases: str) -> WorkloadArray:
    """Return an array of two tasks in these phases. If both tasks have ended, the array has also ended."""
    document = {**training(name, array={"tasks": 2}), "project": "vision"}
    array = arrays.submit(actor=cast.dave, document=document).array
    for index, phase in enumerate(phases):
        ended_at = make.ago() if phase in ("completed", "failed") else None
        Workload.objects.filter(array=array, array_index=index).update(phase=phase, ended_at=ended_at)
    if all(phase in ("completed", "failed") for phase in phases):
        state = "failed" if "failed" in phases else "completed"
        WorkloadArray.objects.filter(pk=array.pk).update(state=state, ended_at=make.ago())
    return array


def test_bulk_cancel_lists_workloads_before_cancelling_them(cast: Cast, sign_in: SignIn) -> None:
    rows = create_three_workloads(cast)
    chosen = {"w": [str(row.pk) for row in rows]}
    dialog = sign_in("dave").get("/workloads/cancel", chosen, headers=HTMX).content.decode()
    assert "Cancel 2 workloads?" in dialog and "w0" in dialog
    assert "1 workload stays unchanged:" in dialog and "Not allowed by your role" in dialog
    assert set(Workload.objects.values_list("phase", flat=True)) == {"pending"}
    answer = sign_in("dave").post("/workloads/cancel", chosen, headers=HTMX)
    assert "2 workloads cancelled" in answer.headers["HX-Trigger"]
    assert {row.name: row.phase for row in Workload.objects.all()} == {
        "w0": "cancelled", "w1": "cancelled", "carols": "pending",
    }  # fmt: skip


def test_bulk_dialog_states_the_lost_work_of_each_workload_and_array(cast: Cast, sign_in: SignIn) -> None:
    node = make.node(cast.pool, gpus=4, cpu_milli=64_000, memory_mib=65_536)
    values: dict[str, Any] = {"phase": "running", "run": 1, "started_at": make.ago(hours=2)}
    quick = make.workload(cast.vision, "quick", by=cast.dave.user, **values)
    slow = make.workload(cast.vision, "slow", by=cast.dave.user, **values)
    waiting = make.workload(cast.vision, "waiting", by=cast.dave.user)
    quick.last_checkpoint_at = make.ago(minutes=30)
    slow.spec["grace_period_seconds"] = 120
    sweep = array_of_two(cast, "sweep", "running", "pending")
    task = Workload.objects.get(array=sweep, array_index=0)
    Workload.objects.filter(pk=task.pk).update(**values)
    task.refresh_from_db()
    for index, row in enumerate((quick, slow, task)):
        make.place(row, node, [index])
    chosen = {"w": [str(row.pk) for row in (quick, slow, waiting)], "a": [str(sweep.pk)]}
    for step in ("cancel", "suspend"):
        dialog = sign_in("dave").get(f"/workloads/{step}", chosen, headers=HTMX).content.decode()
        assert "<strong>4.5 GPU-h of work will be lost.</strong>" in dialog
        assert "Lost work is counted from the last checkpoint or start of each" in dialog
        assert "The pods have up to 2 min to stop." in dialog
        lines = [" ".join(re.sub("<[^>]*>", " ", line).split()) for line in dialog.split("<li>")[1:5]]
        assert lines[0].endswith("30 GPU-min of work lost") and "vision/quick" in lines[0]
        assert lines[1].endswith("2.0 GPU-h of work lost") and "lost" not in lines[2]
        assert "vision/sweep" in lines[3] and "2.0 GPU-h of work lost" in lines[3]
    answer = sign_in("dave").get("/workloads/cancel", {"w": [str(waiting.pk)]}, headers=HTMX)
    assert "to stop" not in answer.content.decode(), "a pending workload has no pods"


def test_bulk_suspend_and_resume_change_only_workloads_in_a_matching_state(
    cast: Cast, sign_in: SignIn
) -> None:
    dave, rows = sign_in("dave"), create_three_workloads(cast)
    chosen = {"w": [str(row.pk) for row in rows]}
    assert "Nothing to resume" in dave.get("/workloads/resume", chosen, headers=HTMX).content.decode()
    assert "Suspend 2 workloads?" in dave.get("/workloads/suspend", chosen, headers=HTMX).content.decode()
    answer = dave.post("/workloads/suspend", chosen, headers=HTMX)
    assert "2 workloads suspended" in answer.headers["HX-Trigger"]
    assert set(Workload.objects.filter(phase="suspended").values_list("name", flat=True)) == {"w0", "w1"}
    assert "Nothing to suspend" in dave.get("/workloads/suspend", chosen, headers=HTMX).content.decode()
    dave.post("/workloads/resume", chosen, headers=HTMX)
    assert set(Workload.objects.values_list("phase", flat=True)) == {"pending"}


def test_bulk_cancel_skips_invisible_workloads(cast: Cast, sign_in: SignIn) -> None:
    rows = create_three_workloads(cast)
    chosen = {"w": [str(rows[0].pk), "nonsense"]}
    assert (
        "Nothing to cancel"
        in sign_in("grace").get("/workloads/cancel", chosen, headers=HTMX).content.decode()
    )
    sign_in("grace").post("/workloads/cancel", chosen, headers=HTMX)
    assert Workload.objects.filter(phase="pending").count() == 3


def test_each_row_lists_the_bulk_actions_that_apply_to_it(cast: Cast, sign_in: SignIn) -> None:
    for phase in ("running", "suspended", "completed"):
        make.workload(cast.vision, phase, phase=phase, by=cast.dave.user)
    make.workload(cast.vision, "carols", by=cast.carol.user)
    array_of_two(cast, "active", "running", "failed")
    array_of_two(cast, "paused", "suspended", "completed")
    array_of_two(cast, "broken", "failed", "completed")
    array_of_two(cast, "whole", "completed", "completed")
    rows = sign_in("dave").get("/workloads?state=all").context["slice"].rows
    assert {row.array.name if row.array else row.name: row.bulk_actions for row in rows} == {
        "running": "suspend cancel", "suspended": "resume cancel", "completed": "resubmit delete",
        "carols": "", "active": "suspend retry cancel", "paused": "resume cancel", "broken": "retry delete",
        "whole": "delete",
    }  # fmt: skip


def test_bulk_dialog_explains_why_some_rows_stay_unchanged(cast: Cast, sign_in: SignIn) -> None:
    running = make.workload(cast.vision, "running", phase="running", by=cast.dave.user)
    ended = [make.workload(cast.vision, f"old-{n}", phase="completed", by=cast.dave.user) for n in range(7)]
    whole = array_of_two(cast, "whole", "completed", "completed")
    chosen = {"w": [str(row.pk) for row in (running, *ended)], "a": [str(whole.pk)]}
    dave = sign_in("dave")

    def words(step: str) -> str:
        dialog = dave.get(f"/workloads/{step}", chosen, headers=HTMX).content.decode()
        return " ".join(re.sub(r"<[^>]+>", " ", dialog).split())

    assert "Cancel 1 workload?" in words("cancel")
    assert (
        "7 workloads and 1 array stay unchanged: Already ended: vision/old-0, vision/old-1, vision/old-2, "
        "vision/old-3, vision/old-4, 3 more" in words("cancel")
    )
    assert "Nothing to resume 8 workloads and 1 array stay unchanged:" in words("resume")
    assert "Not an array; resubmit it instead" in words("retry") and "No failed tasks" in words("retry")
    assert "1 workload stays unchanged: Not yet ended: vision/running" in words("delete")


def test_bulk_dialog_distinguishes_workloads_from_arrays(cast: Cast, sign_in: SignIn) -> None:
    running = make.workload(cast.vision, "running", phase="running", by=cast.dave.user)
    pending = make.workload(cast.vision, "pending", by=cast.dave.user)
    array = array_of_two(cast, "sweep", "pending", "pending")
    dave = sign_in("dave")

    def words(step: str, *rows: Workload | WorkloadArray) -> str:
        chosen = {key: [str(row.pk) for row in rows if isinstance(row, kind)] for key, kind in KINDS.items()}
        dialog = dave.get(f"/workloads/{step}", chosen, headers=HTMX).content.decode()
        return " ".join(re.sub(r"<[^>]+>", " ", dialog).split())

    assert "A cancelled array cannot be resumed." in words("cancel", array)
    assert "Keep running" in words("cancel", running) and "Keep workloads" in words(
        "cancel", running, pending
    )
    assert "The workload stays suspended until you resume it." in words("suspend", pending)
    assert "Keep all" in words("suspend", pending, array)
    assert "Not an array: vision/running" in words("retry", running), "it cannot be resubmitted yet"


def test_selected_arrays_are_suspended_resumed_retried_and_deleted(cast: Cast, sign_in: SignIn) -> None:
    broken, whole = (
        array_of_two(cast, name, "completed", phase)
        for name, phase in (("broken", "failed"), ("whole", "completed"))
    )
    old = make.workload(cast.vision, "old", phase="failed", by=cast.dave.user)
    chosen = {"w": [str(old.pk)], "a": [str(broken.pk), str(whole.pk)]}
    dave = sign_in("dave")

    def post(step: str) -> str:
        return str(dave.post(f"/workloads/{step}", chosen, headers=HTMX).headers["HX-Trigger"])

    def phases() -> list[str]:
        tasks = Workload.objects.filter(array=broken, superseded=False).order_by("array_index")
        return [*tasks.values_list("phase", flat=True)]

    dialog = dave.get("/workloads/retry", chosen, headers=HTMX).content.decode()
    assert "Retry failed tasks of 1 array?" in dialog and "1 failed task<" in dialog
    assert "1 array queued again." in post("retry") and phases() == ["completed", "pending"]
    assert "1 array suspended." in post("suspend") and phases() == ["completed", "suspended"]
    assert "1 array queued again." in post("resume") and phases() == ["completed", "pending"]
    assert "1 workload and 1 array deleted." in post("delete")
    assert [*WorkloadArray.objects.values_list("name", flat=True)] == ["broken"]
    assert not Workload.objects.filter(pk=old.pk).exists()


def test_rejected_bulk_actions_do_not_affect_other_rows(cast: Cast, sign_in: SignIn) -> None:
    first, second = (array_of_two(cast, name, "completed", "failed") for name in ("first", "second"))
    make.workload(cast.vision, "first", phase="running")
    answer = sign_in("dave").post("/workloads/retry", {"a": [str(first.pk), str(second.pk)]}, headers=HTMX)
    assert "1 array queued again. first: vision has a live workload" in answer.headers["HX-Trigger"]
    assert Workload.objects.filter(array=second, attempt=2).exists()
    assert not Workload.objects.filter(array=first, attempt=2).exists()
