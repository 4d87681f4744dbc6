"""Tests for the notes below the numbers on the overview."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from berth.server.web.overview.utilization import MeanUtilization
from pools.models import NodePool
from projects.models import Workload
from scheduler.models import Allocation, UtilizationPoint
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.overview.test_overview_page import figure


@pytest.mark.heavy
def test_each_tile_note_states_one_fact(cast: Cast, sign_in: SignIn, running: Workload) -> None:
    make.node(make.pool("other"), gpus=2)
    make.workload(cast.vision, "paused", phase="suspended")
    make.eviction(running, running, cast.pool, at=make.ago(minutes=5))
    client = sign_in("dave")
    text = " ".join(figure(client, "GPUs free")[1].split())
    assert re.fullmatch(rf"\S+ {cast.pool.name} \S+, other 2", text)
    assert figure(client, "Pending")[1].split() == ["0", "plus", "1", "suspended"]
    assert "latest" in figure(client, "Evictions (24 h)")[1]


@pytest.mark.heavy
def test_moved_workloads_do_not_count_as_evictions(cast: Cast, sign_in: SignIn, running: Workload) -> None:
    for kind, count in (("reclaim", 2), ("consolidate", 1)):
        for _ in range(count):
            make.eviction(running, running, cast.pool, kind=kind)
    assert figure(sign_in("dave"), "Evictions (24 h)")[1].split() == ["2", "and", "1", "moved"]


def test_average_utilization_states_only_a_small_measured_share() -> None:
    assert [MeanUtilization(60, measured).is_partial for measured in (74, 75, 100)] == [True, False, False]


@pytest.mark.heavy
def test_average_utilization_excludes_time_without_measurements(
    cast: Cast, sign_in: SignIn, running: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now().replace(minute=30, second=0, microsecond=0)
    monkeypatch.setattr("berth.server.web.overview.page.timezone.now", lambda: now)
    (pod, _) = running.pods.order_by("rank")
    NodePool.objects.update(created_at=now - timedelta(days=3))
    begin = now - timedelta(hours=5)
    pod.node.created_at = begin
    pod.node.save()
    make.scaling(cast.pool, "ready", "ready", at=begin, node=pod.node)
    Allocation.objects.update(bound_at=begin)
    client = sign_in("dave")
    assert "% used" not in client.get("/").content.decode()
    past = make.past_utilization(pod, now, step=3600, gpus=1, busy=60)
    measured = {"gpu_milli_seconds": 900_000, "gpu_busy_milli_seconds": 540_000}  # 15 minutes of one GPU
    UtilizationPoint.objects.filter(pk=past.pk).update(**measured)
    earlier = make.past_utilization(pod, now - timedelta(hours=1), step=3600, gpus=1, busy=100)

    def tile() -> str:
        return " ".join(figure(client, "GPUs allocated")[1].split())

    # Half of the hour before counts: 30 minutes of one GPU at 100%, and 15 minutes at 60%.
    assert tile().endswith("87% used (1 h), 38% measured"), tile()
    UtilizationPoint.objects.filter(pk=earlier.pk).update(gpu_milli_seconds=0, gpu_busy_milli_seconds=0)
    assert tile().endswith("60% used (1 h), 12% measured"), tile()
    UtilizationPoint.objects.filter(pk=earlier.pk).update(
        gpu_milli_seconds=3_600_000, gpu_busy_milli_seconds=3_600_000
    )
    page = client.get("/").content.decode()
    card = " ".join(re.sub(r"<[^>]+>", " ", page.partition('id="course-title"')[2]).split())
    assert re.search(r"92% used on average, \d+% measured · by hour", card)
    row = re.search(r"<tbody><tr>(.*?)</tr>", page.partition('id="course-table"')[2])
    assert row and "".join(re.findall(r'<td class="num">(.*?)</td>', row[1])[:1]) == "60%"
