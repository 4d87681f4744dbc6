"""Tests for the forecast in the form that retries failed tasks."""

import re

from projects.models import Workload, WorkloadArray
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn, submit_array
from tests.web.workloads.arrays.test_array_pages import HTMX


def forecast(sign_in: SignIn, array: WorkloadArray) -> str:
    form = sign_in("dave").get(f"/arrays/{array.pk}/retry", headers=HTMX).content.decode()
    text = re.sub(r"<[^>]+>", "", form.partition('<p class="wrap">')[2].partition("</p>")[0])
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", text)


def test_retried_tasks_come_before_waiting_tasks_with_higher_indexes(cast: Cast, sign_in: SignIn) -> None:
    array = submit_array(cast, "sweep", 6)
    WorkloadArray.objects.filter(pk=array.pk).update(max_running=2)
    tasks = Workload.objects.filter(array=array)
    tasks.filter(array_index=0).update(phase="failed", ended_at=make.ago(minutes=1), held=False)
    queued = {"expected_start": make.ago(hours=-1).isoformat(), "queue_position": 1, "pool": "local"}
    tasks.filter(array_index__in=(1, 2)).update(held=False, explanation=queued)
    tasks.filter(array_index__in=(3, 4, 5)).update(held=True)
    assert forecast(sign_in, array) == (
        "When one of the 2 pending or running tasks ends, the retried tasks are queued before the 3 waiting "
        "tasks. The next task is expected to start at about TIME UTC."
    )
    tasks.filter(array_index=0).update(phase="pending", ended_at=None, held=True)
    tasks.filter(array_index=5).update(phase="failed", ended_at=make.ago(minutes=1), held=False)
    assert "the waiting and the retried tasks are queued in order of their index" in forecast(sign_in, array)


def test_retry_of_an_array_without_a_limit_is_predicted(cast: Cast, sign_in: SignIn) -> None:
    array = submit_array(cast, "sweep", 3)
    tasks = Workload.objects.filter(array=array)
    tasks.update(held=False)
    tasks.filter(array_index__gt=0).update(phase="failed", ended_at=make.ago(minutes=1))
    assert forecast(sign_in, array) == "All 2 tasks would be queued."
    make.node(cast.pool, gpus=8)
    cast.pool.refresh_from_db()
    assert "would start immediately" in forecast(sign_in, array)
