"""Tests for the runtime estimate, the GPU-hours and the task grid on an array's page."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from projects.models import Workload, WorkloadArray
from projects.services import arrays
from scheduler.models import Allocation
from tests import factories as make
from tests.cast import Cast, training
from tests.web.conftest import SignIn

HOUR = {"started_at": make.ago(hours=3), "ended_at": make.ago(hours=2), "held": False}


def create_array(cast: Cast, **columns: Any) -> WorkloadArray:
    """Return an array of 21 tasks. Task 0 has completed after an hour."""
    document = {**training("grid", array={"tasks": 21, **columns}), "project": "vision"}
    array = arrays.submit(actor=cast.dave, document=document).array
    Workload.objects.filter(array=array, array_index=0).update(phase="completed", **HOUR)
    return array


def figure(page: str, label: str) -> str:
    """Return the text of a figure below its label, or an empty string if the page does not have it."""
    _, _, rest = page.partition(f'<div class="label">{label}</div>')
    return " ".join(re.sub(r"<[^>]+>", " ", rest.partition('class="figure"')[0]).split()[:12])


def test_array_page_estimates_the_remaining_time_from_completed_tasks(cast: Cast, sign_in: SignIn) -> None:
    array = create_array(cast, max_running=4)
    path, client = f"/arrays/{array.pk}", sign_in("erin")
    idle = figure(client.get(path).content.decode(), "Mean task runtime")
    assert idle.startswith("1 h about 5 h left once 4 tasks are running")
    page = client.get(path).content.decode()
    assert "Pending, 5% completed</span></h1>" in page
    assert "at most 4 running at a time" in page
    tasks = Workload.objects.filter(array=array)
    tasks.filter(array_index__in=range(1, 5)).update(phase="running", held=False)
    busy = figure(client.get(path).content.decode(), "Expected end")
    assert "about 4 h 30 min left with 4 running" in busy
    tasks.filter(array_index__in=(3, 4)).update(phase="pending")  # no capacity for more than two tasks
    slow = figure(client.get(path).content.decode(), "Expected end")
    assert "about 9 h 30 min left with 2 running" in slow


def test_array_page_states_when_all_tasks_end_if_the_next_start_is_known(cast: Cast, sign_in: SignIn) -> None:
    array = create_array(cast, max_running=4)
    start = timezone.now() + timedelta(hours=2)
    queued = Workload.objects.filter(array=array, array_index=1)
    queued.update(held=False, explanation={"expected_start": start.isoformat()})
    page = sign_in("erin").get(f"/arrays/{array.pk}")
    assert 0 <= (page.context["expected_end"] - start - timedelta(hours=5)).total_seconds() < 60
    assert "with 4 tasks at a time" in figure(page.content.decode(), "Expected end")


def test_remaining_time_of_an_array_without_max_running_is_estimated_from_running_tasks(
    cast: Cast, sign_in: SignIn
) -> None:
    array = create_array(cast)
    path, client = f"/arrays/{array.pk}", sign_in("erin")
    assert "left" not in figure(client.get(path).content.decode(), "Mean task runtime")
    Workload.objects.filter(array=array, array_index__in=(1, 2)).update(phase="running")
    assert "about 9 h 30 min left with 2 running" in client.get(path).content.decode()


@pytest.mark.parametrize("phase", ["failed", "cancelled"])
def test_only_completed_tasks_count_towards_the_mean_runtime(cast: Cast, sign_in: SignIn, phase: str) -> None:
    array = create_array(cast)
    Workload.objects.filter(array=array, array_index=0).update(phase=phase)
    assert "Mean task runtime" not in sign_in("erin").get(f"/arrays/{array.pk}").content.decode()


def test_ended_array_has_no_remaining_time(cast: Cast, sign_in: SignIn) -> None:
    array = create_array(cast, max_running=4)
    Workload.objects.filter(array=array).update(phase="completed", **HOUR)
    WorkloadArray.objects.filter(pk=array.pk).update(state="completed", ended_at=make.ago(hours=2))
    ended = figure(sign_in("erin").get(f"/arrays/{array.pk}").content.decode(), "Mean task runtime")
    assert ended.startswith("1 h") and "left" not in ended


def test_array_page_shows_gpu_hours_and_cost_of_all_tasks(cast: Cast, sign_in: SignIn) -> None:
    cast.pool.price_per_gpu_hour = 2
    cast.pool.save()
    array = create_array(cast)
    assert "GPU-hours" not in sign_in("erin").get(f"/arrays/{array.pk}").content.decode()
    node = make.node(cast.pool)
    for index in (0, 1):
        pod = make.place(Workload.objects.get(array=array, array_index=index), node, [index])
        Allocation.objects.filter(pod=pod).update(bound_at=make.ago(hours=3), released_at=make.ago(hours=1.5))
    amounts = figure(sign_in("erin").get(f"/arrays/{array.pk}").content.decode(), "GPU-hours")
    assert amounts.startswith("3.0 6.00 USD")


def test_task_squares_are_numbered_in_tens(cast: Cast, sign_in: SignIn) -> None:
    page = sign_in("erin").get(f"/arrays/{create_array(cast).pk}").content.decode()
    groups = [part.partition("</span>")[0] for part in page.split('<span class="ten">')[1:]]
    assert [re.findall(r"<b[^>]*>(\d+)</b>", group) for group in groups] == [["0"], ["10"], ["20"]]
    assert [group.count("<a ") for group in groups] == [10, 10, 1]


def test_reserved_tasks_look_like_pending_tasks_on_the_task_map(cast: Cast, sign_in: SignIn) -> None:
    array = create_array(cast)
    Workload.objects.filter(array=array, array_index=3).update(phase="reserved")
    page = sign_in("erin").get(f"/arrays/{array.pk}").content.decode()
    square = re.search(r'<a class="(\w+)"[^>]* aria-label="[^"]*-3: (\w+)', page)
    assert square and square.groups() == ("pending", "reserved")
