"""Tests for actions on the tasks of an array."""

import re

import pytest

from projects.models import Workload, WorkloadArray
from scheduler.reports.what_if.smallest_change import RenderedChange
from scheduler.web.workloads import pages
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn, submit_array
from tests.web.workloads.arrays.test_array_pages import HTMX, report_losses, text


@pytest.mark.heavy
def test_array_tasks_are_suspended_and_resumed_on_the_array_page(
    sweep: WorkloadArray, sign_in: SignIn
) -> None:
    dave, url = sign_in("dave"), f"/arrays/{sweep.pk}"
    Workload.objects.filter(array=sweep, array_index=3).update(phase="completed", ended_at=make.ago())
    page = text(dave, url)
    assert 'id="action-suspend"' in page and 'id="action-resume"' not in page
    form = dave.get(f"{url}/suspend", headers=HTMX).content.decode()
    assert "All 116 pending and running tasks" in form and ">Suspend 116 tasks</span>" in form
    answer = dave.post(f"{url}/suspend", {"indexes": "10-19"}, headers=HTMX)
    assert "10 tasks of sweep suspended." in answer.headers["HX-Trigger"]
    assert (
        "106 tasks of sweep suspended."
        in dave.post(f"{url}/suspend", {"indexes": ""}, headers=HTMX).headers["HX-Trigger"]
    )
    assert set(Workload.objects.filter(array=sweep, array_index__gt=3).values_list("phase", flat=True)) == {
        "suspended"
    }
    page = text(dave, url)
    assert 'id="action-suspend"' not in page and 'id="action-resume"' in page
    form = dave.get(f"{url}/resume", headers=HTMX).content.decode()
    assert "All 116 suspended tasks" in form and "Keep suspended" in form
    assert (
        "116 tasks of sweep queued again."
        in dave.post(f"{url}/resume", {"indexes": ""}, headers=HTMX).headers["HX-Trigger"]
    )
    assert not Workload.objects.filter(array=sweep, phase="suspended").exists()
    for step in ("suspend", "resume"):
        assert sign_in("erin").post(f"{url}/{step}").status_code == 403
        assert sign_in("grace").post(f"{url}/{step}").status_code == 404


def test_cancel_form_counts_the_tasks_that_wait_for_earlier_tasks(
    sweep: WorkloadArray, sign_in: SignIn
) -> None:
    held = Workload.objects.filter(array=sweep, held=True).count()
    dave, url = sign_in("dave"), f"/arrays/{sweep.pk}/cancel"
    sentence = f"The unfinished tasks include {held} tasks that wait for earlier tasks."
    assert held > 1 and sentence in dave.get(url, headers=HTMX).content.decode()
    Workload.objects.filter(array=sweep).update(held=False)
    assert "wait for earlier tasks" not in dave.get(url, headers=HTMX).content.decode()


def test_pending_array_shows_the_smallest_change_of_its_first_queued_task(
    sweep: WorkloadArray, sign_in: SignIn
) -> None:
    tasks = Workload.objects.filter(array=sweep)
    assert "smallest-change" not in text(sign_in("dave"), f"/arrays/{sweep.pk}"), "a task is running"
    tasks.filter(phase="running").update(phase="completed", ended_at=make.ago())
    first = tasks.filter(phase="pending", held=False).order_by("array_index")[0]
    page = text(sign_in("dave"), f"/arrays/{sweep.pk}")
    assert f'hx-get="/workloads/{first.pk}/smallest-change?page=array" hx-trigger="load"' in page
    legend = page.partition('class="legend tasks-legend">')[2].partition("</div>")[0]
    assert re.sub(r"<[^>]+>", " ", legend).split()[1:4:2] == ["completed", "failed"]


def test_array_page_states_that_the_next_task_starts_soon(
    sweep: WorkloadArray, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = RenderedChange("not_needed", "The workload starts in the next cycle.")
    monkeypatch.setattr(pages, "find_smallest_change", lambda *_, **__: answer)
    task = Workload.objects.filter(array=sweep, phase="pending", held=False).order_by("array_index")[0]
    card = sign_in("dave").get(f"/workloads/{task.pk}/smallest-change?page=array").content.decode()
    assert "The next scheduling cycle starts the task or reserves capacity for it." in card
    assert "hx-swap-oob" not in card


def test_array_failures_are_grouped_with_a_log_for_each_group(
    sweep: WorkloadArray, cast: Cast, sign_in: SignIn
) -> None:
    tasks = Workload.objects.filter(array=sweep)
    tasks.filter(array_index__lt=40).update(
        phase="failed", reason="PodFailed", exit_code=1, run=1, started_at=make.ago(minutes=3),
        ended_at=make.ago(minutes=1), message="Pod worker-0 ended with exit code 1.",
    )  # fmt: skip
    tasks.filter(array_index__in=(7, 9)).update(exit_code=137)
    first, node = tasks.get(array_index=0), make.node(cast.pool, gpus=2)
    pod = make.place(first, node, [0], state="failed", ended_at=make.ago(), exit_code=1)
    page = text(sign_in("erin"), f"/arrays/{sweep.pk}", state="failed")
    words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert re.search(r'<section class="[^"]*\bverdict bad\b[^"]*" aria-labelledby="failures-title"', page)
    assert "38 tasks failed: exit code 1 Tasks 0 to 6, 8, 10 to 39" in words
    assert "2 tasks failed: SIGKILL Tasks 7 , 9" in words
    killed = tasks.get(array_index=9)
    assert f'<a href="/workloads/{killed.pk}">9</a>' in page
    assert f'<a href="/arrays/{sweep.pk}?state=failed#tasks">Tasks 0 to 6, 8, 10 to 39</a>' in page
    line = f'data-log-line="/workloads/{first.pk}/log?pod={pod.pk}&amp;tail=40"'
    assert page.count(line) == 2, "in the group and in the row of the task"
    assert f'href="/workloads/{first.pk}/logs">Log of task {first.array_index}</a>' in page
    assert "6 more tasks with the same state and reason: sweep-1 to sweep-6" in words
    listed = page.partition('id="tasks"')[2]
    assert re.findall(r">(sweep-\d+)</a>", listed)[:2] == ["sweep-0", "sweep-7"]
    assert ">2 min</td>" in page, "the runtime"
    listed = text(sign_in("erin"), f"/arrays/{sweep.pk}", state="failed", rows="all")
    assert listed.count('<th scope="row">') == 40


def test_equal_tasks_of_a_small_array_are_listed_individually(cast: Cast, sign_in: SignIn) -> None:
    small = submit_array(cast, "small", 5)
    Workload.objects.filter(array=small).update(held=False)
    page = text(sign_in("erin"), f"/arrays/{small.pk}")
    assert page.count('<th scope="row">') == 5 and "with the same state and reason" not in page


def test_retry_form_offers_the_failed_tasks_or_a_choice_of_tasks(
    sweep: WorkloadArray, sign_in: SignIn
) -> None:
    dave, url = sign_in("dave"), f"/arrays/{sweep.pk}/retry"
    form = dave.get(url, headers=HTMX).content.decode()
    assert "2 failed tasks (1, 2)" in form and "Other tasks" in form
    assert ">Retry 2 tasks</span>" in form and ">Retry tasks</span>" in form
    page = text(dave, f"/arrays/{sweep.pk}")
    assert re.search(r"<span>Retry 2<span[^>]*> failed tasks</span></span></a>", page)
    assert "Retry" not in text(sign_in("erin"), f"/arrays/{sweep.pk}")
    answer = dave.post(url, {"choice": "other", "indexes": " "}, headers=HTMX)
    assert answer.status_code == 422 and "Enter the task indexes." in answer.content.decode()
    answer = dave.post(url, {"choice": "other", "indexes": "0"}, headers=HTMX)
    assert "1 task of sweep queued again." in answer.headers["HX-Trigger"]
    assert [*Workload.objects.filter(attempt=2).values_list("array_index", flat=True)] == [0]
    answer = dave.post(url, {"choice": "usual", "indexes": "119"}, headers=HTMX)
    assert "2 tasks of sweep queued again." in answer.headers["HX-Trigger"]
    assert "Retry" not in text(dave, f"/arrays/{sweep.pk}"), "no task has failed"


def test_cancel_form_preselects_all_live_tasks(sweep: WorkloadArray, sign_in: SignIn) -> None:
    form = sign_in("dave").get(f"/arrays/{sweep.pk}/cancel", headers=HTMX).content.decode()
    assert "All 117 unfinished tasks" in form and ">Cancel 117 tasks</span>" in form and "Keep tasks" in form


def test_cancel_and_suspend_forms_show_lost_work_and_grace_period_of_the_selected_tasks(
    sweep: WorkloadArray, cast: Cast, sign_in: SignIn
) -> None:
    running = Workload.objects.filter(array=sweep, phase="running")
    running.update(phase="pending", held=False)
    node = make.node(cast.pool, gpus=2)
    tasks = Workload.objects.filter(array=sweep, array_index__in=(3, 4)).order_by("array_index")
    for device, task in enumerate(tasks):
        task.phase, task.held, task.run, task.started_at = "running", False, 1, make.ago(hours=device + 1)
        task.save()
        make.place(task, node, [device])
    dave, url = sign_in("dave"), f"/arrays/{sweep.pk}"
    part = HTMX | {"HX-Target": "stop-cost"}
    for step in ("cancel", "suspend"):
        form = dave.get(f"{url}/{step}", headers=HTMX).content.decode()
        assert "3.0 GPU-h of work will be lost.</strong>" in form and "start of each task." in form
        assert "The pods have 30 s to stop." in form
        some = dave.get(f"{url}/{step}", {"choice": "other", "indexes": "3, 50"}, headers=part)
        assert "1.0 GPU-h of work will be lost.</strong>" in some.content.decode()
        none = dave.get(f"{url}/{step}", {"choice": "other", "indexes": "50"}, headers=part).content.decode()
        assert "will be lost" not in none and "to stop" not in none
        typing = dave.get(f"{url}/{step}", {"choice": "other", "indexes": "3-"}, headers=part)
        assert typing.status_code == 200 and "will be lost" not in typing.content.decode()
    assert 'id="stop-cost"' not in dave.get(f"{url}/resume", headers=HTMX).content.decode()


def test_tasks_of_an_array_without_failures_can_be_run_again(sweep: WorkloadArray, sign_in: SignIn) -> None:
    Workload.objects.filter(array=sweep).update(held=False, phase="completed", ended_at=make.ago(minutes=1))
    WorkloadArray.objects.update(state="completed", ended_at=make.ago())
    dave, url = sign_in("dave"), f"/arrays/{sweep.pk}/retry"
    page = text(dave, f"/arrays/{sweep.pk}")
    assert "Run tasks again</span></a>" in page and "Retry" not in page
    form = dave.get(url, headers=HTMX).content.decode()
    assert "Run tasks of sweep again?" in form and "Other tasks" not in form
    assert dave.post(url, {"indexes": ""}, headers=HTMX).status_code == 422
    assert "3 tasks of sweep" in dave.post(url, {"indexes": "0-2"}, headers=HTMX).headers["HX-Trigger"]


def test_retry_is_the_main_action_only_for_arrays_with_failures(
    sweep: WorkloadArray, sign_in: SignIn
) -> None:
    dave = sign_in("dave")
    Workload.objects.filter(array=sweep, phase="running").update(
        phase="completed", ended_at=make.ago(minutes=1)
    )
    dave.post(f"/arrays/{sweep.pk}/cancel", {"indexes": ""})
    retry, copy = (
        '<a class="button primary" id="action-retry"',
        '<a class="button primary" href="/submit?like=',
    )
    page = text(dave, f"/arrays/{sweep.pk}")
    assert (retry in page, copy in page) == (True, False)
    Workload.objects.filter(array=sweep, phase="failed").update(phase="completed")
    page = text(dave, f"/arrays/{sweep.pk}")
    assert (retry in page, copy in page) == (False, True)


def test_worst_tasks_can_be_cancelled(sweep: WorkloadArray, sign_in: SignIn) -> None:
    report_losses(sweep)
    client, url = sign_in("dave"), f"/arrays/{sweep.pk}/worst"
    assert 'value="loss"' in text(client, url, metric="loss", goal="min")
    client.post(url, {"count": "1", "metric": "loss", "goal": "min"})
    assert Workload.objects.get(array=sweep, array_index=3).phase == "stopping"
    assert sign_in("erin").post(url, {"count": "1"}).status_code == 403
