"""Tests of the utilization charts of nodes and workloads."""

import html
import json
import re
from datetime import timedelta

import pytest

from pools.models import Node
from projects.models import Pod
from scheduler.models import Allocation, DeviceClaim
from scheduler.web.utilization.charts import _memory_scale
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.usage.conftest import page


def test_small_amounts_of_memory_are_charted_in_mib() -> None:
    unit, convert = _memory_scale([12, 300, None])
    assert (unit, convert(300), convert(None)) == ("MiB", 300_000, None)
    unit, convert = _memory_scale([12, 2048])
    assert (unit, convert(2048)) == ("GiB", 2000)


def test_node_chart_weights_allocations_by_time(cast: Cast, sign_in: SignIn, pod: Pod) -> None:
    at = make.ago(minutes=5).replace(second=0, microsecond=0)
    Node.objects.update(created_at=at - timedelta(hours=1))
    DeviceClaim.objects.all().delete()
    # Each pod holds the whole node, one after the other, with 15 seconds between them.
    Allocation.objects.update(
        devices=[0, 1], cpu_milli=8000, bound_at=at, released_at=at + timedelta(seconds=30)
    )
    other = make.workload(cast.vision, "other", phase="running", run=1, started_at=at)
    following = make.place(other, pod.node, [0, 1])
    for each in (pod, following):
        make.past_utilization(each, at, gpus=2, busy=50, cpu=4000)
    Allocation.objects.filter(pod=following).update(cpu_milli=8000, bound_at=at + timedelta(seconds=45))
    text = page(sign_in("alice"), f"/nodes/{pod.node.name}/utilization")
    charts = re.findall(r'aria-label="(GPU utilization|CPU)(: up to [^"]*)" data-points="([^"]*)"', text)
    assert [label for _, label, _ in charts] == [
        ": up to 0.75 of 1.50 GPUs used; capacity 2.00",
        ": up to 3.00 of 6.00 cores used; capacity 8.00",
    ]
    assert json.loads(charts[0][2])[0][1:] == [750, 1500, 2000]
    assert '<line class="limit"' in text
    answer = sign_in("alice").get(f"/api/v1/nodes/{pod.node.name}/utilization").json()
    assert answer["over_time"][0]["allocated"]["gpu"] == 1.5


def test_chart_shows_the_whole_allocation_in_the_first_minute_of_a_workload(
    cast: Cast, sign_in: SignIn, pod: Pod
) -> None:
    at = make.ago(minutes=5).replace(second=0, microsecond=0)
    make.past_utilization(pod, at, gpus=1, busy=50)
    Allocation.objects.filter(pod=pod).update(bound_at=at + timedelta(seconds=50))
    text = page(sign_in("erin"), f"/workloads/{pod.workload_id}/utilization")
    assert 'aria-label="GPU utilization: up to 0.50 of 1.00 GPUs used"' in text


@pytest.mark.parametrize("path", ["utilization", "utilization?part=strip"])
def test_charts_have_a_gap_where_nothing_was_measured(
    path: str, cast: Cast, sign_in: SignIn, pod: Pod
) -> None:
    make.used(pod, 50, at=make.ago(minutes=20))
    at = make.ago(minutes=50).replace(second=0, microsecond=0)
    for minutes in (0, 1, 20, 21):
        make.past_utilization(pod, at + timedelta(minutes=minutes), gpus=1, busy=50)
    text = page(sign_in("erin"), f"/workloads/{pod.workload_id}/{path}")
    chart = re.search(r'aria-label="GPU utilization: [^"]*" data-points="([^"]*)".*?</svg>', text, re.DOTALL)
    assert chart is not None
    used = [value for _, value, *_ in json.loads(html.unescape(chart[1]))]
    assert used == [500, 500, None, 500, 500, None], "the chart ends at the last measurement"
    for path_data in re.findall(r'<path class="(?:used|edge)" d="([^"]*)"', chart[0]):
        ends = [int(x) for x in re.findall(r"[ML](\d+) ", path_data)]
        assert path_data.count("M") == 2, "one part for each series of measurements"
        assert max(ends) < 600 and not any(200 < x < 480 for x in ends)


def test_day_chart_has_a_gap_for_the_hour_in_which_the_pod_was_stopped(
    cast: Cast, sign_in: SignIn, pod: Pod
) -> None:
    make.used(pod, 50)
    for hours in (5, 4, 2, 1, 0):
        make.past_utilization(pod, make.ago(hours=hours), step=3600, gpus=1, busy=50)
    text = page(sign_in("erin"), f"/workloads/{pod.workload_id}/utilization?span=24h")
    chart = re.search(r'aria-label="GPU utilization: [^"]*" data-points="([^"]*)".*?</svg>', text, re.DOTALL)
    assert chart is not None
    used = [value for _, value, *_ in json.loads(html.unescape(chart[1]))]
    assert used == [500, 500, None, 500, 500, 500]
    for path_data in re.findall(r'<path class="(?:used|line)" d="([^"]*)"', chart[0]):
        assert path_data.count("M") == 2, "neither the area nor the line is drawn through the gap"


def test_page_states_that_a_run_ended_before_its_first_measurement(cast: Cast, sign_in: SignIn) -> None:
    ended = make.ago(minutes=1)
    short = make.workload(
        cast.vision, "short", phase="failed", run=1, started_at=ended - timedelta(seconds=4), ended_at=ended
    )
    text = page(sign_in("dave"), f"/workloads/{short.pk}/resources")
    assert "The run ended before its first measurement." in text and "longer time range" not in text
