"""Tests for allocated, used and unmeasured resources on pages."""

import csv
import io
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from berth.server.web.charts.steps import HEIGHT
from pools.models import Node, NodePool, ScalingEvent
from projects.models import MetricsPoint, Pod, Service, Workload
from projects.services import workloads
from scheduler.models import Allocation, NodeUtilization
from tests import factories as make
from tests.cast import Cast
from tests.services.stage import document
from tests.web.conftest import SignIn, streamed
from tests.web.usage.conftest import page


def test_workload_page_shows_utilization_in_numbers_and_charts(cast: Cast, sign_in: SignIn, pod: Pod) -> None:
    make.used(pod, 25, cpu=500, memory=1024, gpu_memory=2048)
    make.past_utilization(pod, make.ago(minutes=3), gpus=1, busy=50, gpu_memory=2048)
    for path in (
        f"/workloads/{pod.workload_id}/resources",
        f"/workloads/{pod.workload_id}/utilization?span=6h",
    ):
        text = page(sign_in("erin"), path)
        for fragment in (
            "<dd>0.5</dd>", "of 2 cores", "<dd>1 GiB</dd>", "<dd>25%</dd>", "GPU 1: 25% used, 2 GiB",
            "<svg",
        ):  # fmt: skip
            assert fragment in text, (path, fragment)
        assert "not measured" not in text
    assert sign_in("grace").get(f"/workloads/{pod.workload_id}/utilization").status_code == 404


def test_sparkline_axis_is_labelled_with_its_maximum(cast: Cast, sign_in: SignIn, pod: Pod) -> None:
    make.used(pod, 25, cpu=500, memory=1024, gpu_memory=2048)
    make.past_utilization(pod, make.ago(minutes=3), cpu=500, gpus=1, busy=50, gpu_memory=2048)
    path = f"/workloads/{pod.workload_id}/utilization?part=strip"

    def tops() -> list[str]:
        return re.findall('class="top-label"[^>]*>([^<]*)<', page(sign_in("erin"), path))

    assert tops() == ["100%", "80 GiB", "2 cores", "4 GiB"], "the allocated amounts"
    make.past_utilization(pod, make.ago(minutes=2), cpu=3500, gpus=1, busy=50, gpu_memory=2048)
    assert tops()[2] == "3.5 cores", "the pod used more than it requested"
    make.past_utilization(pod, make.ago(minutes=1), cpu=500, gpus=1, busy=50, gpu_memory=82_410)
    assert tops()[1] == "80.5 GiB"
    chart = (HEIGHT * 3500) // 4000  # the scale ends at the next round number, the small chart below it
    assert f'viewBox="0 {HEIGHT - chart} 1000 {chart}"' in page(sign_in("erin"), path)


@pytest.mark.heavy
def test_overview_of_a_running_workload_shows_its_utilization(cast: Cast, sign_in: SignIn, pod: Pod) -> None:
    client, address = sign_in("erin"), f"/workloads/{pod.workload_id}"
    assert "GPU utilization" not in page(client, address), "nothing is measured yet"
    make.used(pod, 25, cpu=500, memory=1024, gpu_memory=2048)
    make.past_utilization(pod, make.ago(minutes=3), gpus=1, busy=50, gpu_memory=2048)
    for path in (address, f"{address}/utilization?part=strip"):
        text = page(client, path)
        for fragment in ("<dd>25%</dd>", "of 1 GPU", "<dd>2 GiB</dd>", "<dd>0.5</dd>", "of 2 cores", "<svg"):
            assert fragment in text, (path, fragment)
    assert sign_in("grace").get(f"{address}/utilization?part=strip").status_code == 404


@pytest.mark.heavy
def test_workload_page_shows_when_utilization_was_last_measured(
    cast: Cast, sign_in: SignIn, pod: Pod
) -> None:
    at = make.ago(minutes=20)
    make.used(pod, 25, at=at)
    for path in ("", "/resources"):
        text = page(sign_in("erin"), f"/workloads/{pod.workload_id}{path}")
        assert "25%" in text and f'datetime="{at.isoformat()}"' in text, path


@pytest.mark.heavy
def test_workload_list_shows_how_long_a_workload_has_been_unmeasured(
    cast: Cast, sign_in: SignIn, pod: Pod
) -> None:
    client, stopped = sign_in("erin"), make.ago(minutes=20)
    assert "not measured" not in page(client, "/workloads"), "nothing was ever measured"
    use = make.used(pod, 25, at=stopped, busy_at=stopped)
    text = page(client, "/workloads")
    assert "not measured" in text and f'<time datetime="{stopped.isoformat()}" data-style="moment"' in text
    assert "25%" not in text, "an old value is not shown as the current one"
    rows = csv.DictReader(io.StringIO(streamed(client.get("/workloads?format=csv")).decode()))
    assert [row["GPU utilization (%)"] for row in rows] == [""]
    use.at = timezone.now()
    use.save()
    text = page(client, "/workloads")
    assert "25%" in text and "not measured" not in text


@pytest.mark.heavy
def test_missing_measurements_are_shown_as_not_measured(cast: Cast, sign_in: SignIn, pod: Pod) -> None:
    text = page(sign_in("dave"), f"/workloads/{pod.workload_id}/resources")
    assert text.count("not measured") >= 4
    make.used(pod, None, gpu_memory=None)
    text = page(sign_in("dave"), f"/workloads/{pod.workload_id}/utilization")
    assert '<dd>1</dd><dd class="note"><span>of 2 cores' in text
    assert text.count('<span class="unmeasured">not measured') == 2, "for GPUs and for their memory"
    assert "0%" not in text


def test_unmeasured_gpus_are_shown_as_one_number_with_the_reason(
    cast: Cast, sign_in: SignIn, pod: Pod
) -> None:
    make.used(pod, None, gpu_memory=None)
    text = page(sign_in("dave"), f"/workloads/{pod.workload_id}/utilization?part=strip")
    assert text.count("not measured") == 1
    assert f"nvidia-smi is not responding on {pod.node.name}" in text


def test_simulated_gpus_are_not_reported_as_failing(
    cast: Cast, sign_in: SignIn, pod: Pod, settings: Settings
) -> None:
    settings.BERTH_DECLARED_GPUS = 4
    pool = pod.node.pool
    NodePool.objects.filter(pk=pool.pk).update(provider="local")
    make.used(pod, None, gpu_memory=None)
    text = page(sign_in("dave"), f"/workloads/{pod.workload_id}/utilization?part=strip")
    assert "simulated GPUs have no measurements" in text and "not responding" not in text
    text = page(sign_in("alice"), f"/nodes/{pod.node.name}/utilization")
    assert "The GPUs of this node are simulated and have no measurements." in text
    NodePool.objects.filter(pk=pool.pk).update(provider="static")
    text = page(sign_in("dave"), f"/workloads/{pod.workload_id}/utilization?part=strip")
    assert "nvidia-smi is not responding" in text


def test_page_states_when_the_first_measurement_of_a_run_is_expected(
    cast: Cast, sign_in: SignIn, pod: Pod
) -> None:
    path = f"/workloads/{pod.workload_id}/utilization?part=strip"
    Workload.objects.filter(pk=pod.workload_id).update(since=make.ago(seconds=5))
    assert "The first measurement is expected within 30 seconds." in page(sign_in("dave"), path)
    Workload.objects.filter(pk=pod.workload_id).update(since=make.ago(minutes=2))
    assert "first measurement" not in page(sign_in("dave"), path)


@pytest.mark.heavy
def test_pending_workload_has_no_utilization(cast: Cast, sign_in: SignIn) -> None:
    pending = make.workload(cast.vision, "waits")
    text = page(sign_in("dave"), f"/workloads/{pending.pk}/resources")
    assert "Nothing measured yet" in text
    assert "not measured</span>" not in text


def test_idle_gpus_are_highlighted_on_the_workload_page_and_in_the_list(
    cast: Cast, sign_in: SignIn, pod: Pod
) -> None:
    other = make.workload(cast.vision, "busy-one", phase="running", run=1, started_at=make.ago(hours=2))
    make.used(make.place(other, pod.node, [0]), 80)
    make.used(pod, 0, busy_at=make.ago(hours=2))
    client = sign_in("dave")
    assert "The GPUs are still allocated" in page(client, f"/workloads/{pod.workload_id}")
    assert "idle</strong> since" not in page(client, f"/workloads/{other.pk}")
    listed = page(client, "/workloads")
    assert listed.count("GPUs idle") == 1 and "GPU utilization 80%" in listed
    rows = csv.DictReader(io.StringIO(streamed(client.get("/workloads?format=csv")).decode()))
    assert {row["Workload"]: row["GPU utilization (%)"] for row in rows} == {
        "busy-one": "80.0",
        "train": "0.0",
    }


def test_node_page_marks_allocated_gpus_below_the_idle_threshold(
    cast: Cast, sign_in: SignIn, pod: Pod
) -> None:
    devices = [[10, 2048] if index in pod.allocation.devices else [0, 4] for index in range(2)]
    Allocation.objects.filter(pod=pod).update(bound_at=timezone.now() - timedelta(minutes=3))
    measured = NodeUtilization.objects.create(node=pod.node, at=timezone.now(), devices=devices)
    pages = (f"/nodes/{pod.node.name}/contents", f"/node-pools/{pod.node.pool.name}")
    for path in pages:
        text = page(sign_in("dave"), path)
        assert text.count("<strong>Idle</strong> (1%), 2 GiB") == len(pod.allocation.devices), path
        assert "<strong>Idle</strong> (0%)" not in text, "free GPUs are not idle"
    measured.devices = [[100, 2048]] * 2
    measured.save()
    assert "Idle" not in page(sign_in("dave"), pages[0])


@pytest.mark.parametrize(("measured_ago", "bound_ago"), [(1, 1), (60, 120)])
def test_gpus_are_not_idle_before_their_utilization_is_known(
    cast: Cast, sign_in: SignIn, pod: Pod, measured_ago: int, bound_ago: int
) -> None:
    now = timezone.now()
    Allocation.objects.filter(pod=pod).update(bound_at=now - timedelta(minutes=bound_ago))
    NodeUtilization.objects.create(
        node=pod.node, at=now - timedelta(minutes=measured_ago), devices=[[10, 2048]] * 2
    )
    text = page(sign_in("dave"), f"/nodes/{pod.node.name}/contents")
    assert "1%" in text and "Idle" not in text


def test_node_page_shows_gpu_utilization_without_workload_names(
    cast: Cast, sign_in: SignIn, pod: Pod
) -> None:
    make.used(pod, 25)
    path = f"/nodes/{pod.node.name}/utilization"
    assert "is not measured" in page(sign_in("grace"), path)
    NodeUtilization.objects.create(node=pod.node, at=timezone.now(), devices=[[0, 4], [255, 2048]])
    assert "is not measured" not in page(sign_in("grace"), path)
    text = page(sign_in("grace"), f"/nodes/{pod.node.name}/contents")
    assert "0% used, 4 MiB" in text
    assert "25.5% used, 2 GiB" in text
    assert "train" not in text, "workload names are shown only to users who may see them"
    assert path in page(sign_in("grace"), f"/nodes/{pod.node.name}")
    assert sign_in("grace").get("/nodes/none/utilization").status_code == 404
    for hidden in (path, f"/nodes/{pod.node.name}", f"/node-pools/{pod.node.pool.name}",
                   f"/node-pools/{pod.node.pool.name}/settings"):  # fmt: skip
        assert sign_in("frank").get(hidden).status_code == 404, hidden


def readouts(answer: Any) -> list[list[float]]:
    """Return the time and the used, idle, unmeasured and free GPUs of each hour in the overview's chart,
    latest first.
    """
    return sorted(json.loads(answer.context["chart"].readouts), reverse=True)


def test_overview_distinguishes_allocated_and_used_gpus(cast: Cast, sign_in: SignIn, pod: Pod) -> None:
    client = sign_in("dave")
    assert "</i>allocated, idle" not in page(client, "/")
    pod.allocation.bound_at = make.ago(hours=3)
    pod.allocation.save()
    make.past_utilization(pod, make.ago(hours=1), step=3600, gpus=1, busy=75)
    answer = client.get("/")
    hour, _ = answer.context["course"][1]
    assert (hour.allocated, hour.measured, hour.used) == (1, 1, 0.75)
    assert "</i>allocated, idle" in answer.content.decode()
    (_, used, idle, unmeasured, _) = readouts(answer)[1]
    assert (used, idle, unmeasured) == (0.8, 0.2, 0)


@pytest.mark.heavy
@pytest.mark.parametrize("span", ["1h", "7d", "", "x", "%00", "-1"])
def test_any_time_range_is_accepted(cast: Cast, sign_in: SignIn, pod: Pod, span: str) -> None:
    assert sign_in("dave").get(f"/workloads/{pod.workload_id}/utilization?span={span}").status_code == 200


@pytest.mark.heavy
def test_completed_workload_keeps_its_utilization_chart(cast: Cast, sign_in: SignIn, pod: Pod) -> None:
    make.past_utilization(pod, make.ago(minutes=50), cpu=700)
    Pod.objects.update(state="succeeded", ended_at=make.ago(minutes=40))
    Workload.objects.filter(pk=pod.workload_id).update(phase="completed", ended_at=make.ago(minutes=40))
    text = page(sign_in("dave"), f"/workloads/{pod.workload_id}/utilization")
    assert "CPU: up to 0.70 of 2.00 cores used" in text
    assert "every 15s" not in text


def test_charts_of_an_ended_workload_cover_its_last_run(cast: Cast, sign_in: SignIn, pod: Pod) -> None:
    began, ended = make.ago(minutes=90), make.ago(minutes=80)
    make.past_utilization(pod, ended, cpu=700)
    Workload.objects.update(phase="completed", run=2, started_at=began, ended_at=ended)
    client, path = sign_in("dave"), f"/workloads/{pod.workload_id}/utilization"
    for query in ("", "?span=7d"):  # the run is shorter than a week
        course = client.get(f"{path}{query}").context["course"]
        assert (course.begin, course.end) == (began.replace(second=0, microsecond=0), ended)
    links = re.findall(r'id="use-(\w+)" href[^>]*>([^<]+)<', page(client, path))
    assert links == [("run", "Last run")]
    Workload.objects.update(phase="running", run=1, ended_at=None)
    links = re.findall(r'id="use-(\w+)" href[^>]*>([^<]+)<', page(client, path))
    assert links[:2] == [("run", "Whole run"), ("1h", "Hour")]
    assert client.get(path).context["course"].span == "1h"


def test_charts_of_an_idle_pod_without_requests_stay_near_zero(cast: Cast, sign_in: SignIn, pod: Pod) -> None:
    Allocation.objects.update(cpu_milli=0, memory_mib=0)
    make.past_utilization(pod, make.ago(minutes=3), cpu=1, memory=2)
    text = page(sign_in("dave"), f"/workloads/{pod.workload_id}/utilization?span=1h")
    assert "CPU: up to 0.00 cores used" in text
    heights = re.search(r'<path class="used" d="([^"]+)"', text)
    assert heights and min(int(y) for y in re.findall(r"[ML ]\d+ (\d+)", heights[1])) >= HEIGHT * 0.95
    assert "</i>allocated</span>" not in text.partition("<details")[0]


def filled_ranges(text: str, kind: str) -> list[int]:
    path = re.search(rf'<path class="{kind}" d="([^"]+)"', text)
    assert path is not None
    return [int(x) for x, y in re.findall(r"[ML ](\d+) (\d+)", path[1]) if int(y) < HEIGHT]


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["used", "line"])
def test_chart_axis_is_proportional_to_time(cast: Cast, sign_in: SignIn, pod: Pod, kind: str) -> None:
    now = make.ago()
    for minute in range(8):
        make.past_utilization(pod, now - timedelta(minutes=minute), gpus=1, busy=50)
    text = page(sign_in("dave"), f"/workloads/{pod.workload_id}/utilization?span=1h")
    places = filled_ranges(text, kind)
    assert 1000 * 52 / 60 - 20 <= min(places) <= 1000 * 53 / 60 + 20
    assert max(places) == 1000


@pytest.mark.heavy
def test_chart_line_is_not_drawn_through_gaps_between_samples(cast: Cast, sign_in: SignIn, pod: Pod) -> None:
    now = make.ago()
    for minute in (0, 1, 30, 31):
        make.past_utilization(pod, now - timedelta(minutes=minute), gpus=1, busy=50)
    text = page(sign_in("dave"), f"/workloads/{pod.workload_id}/utilization?span=1h")
    line = re.search(r'<path class="line" d="([^"]+)"', text)
    assert line is not None
    assert line[1].count("M") == 2, "the line of allocated GPUs is not drawn through the gap"


@pytest.mark.heavy
def test_overview_shows_gpus_allocated_in_a_partial_hour(cast: Cast, sign_in: SignIn, pod: Pod) -> None:
    long_ago = timezone.now() - timedelta(hours=3)
    NodePool.objects.update(created_at=long_ago)
    Node.objects.update(created_at=long_ago, since=long_ago)
    ScalingEvent.objects.all().delete()
    Allocation.objects.update(bound_at=long_ago)
    answer = sign_in("alice").get("/")
    (latest, _), (before, _), *_ = answer.context["course"]
    assert (round(latest.allocated, 1), round(before.allocated, 1)) == (1.0, 1.0)
    assert readouts(answer)[0][3] == 1.0, "one GPU is allocated and not measured"


@pytest.mark.heavy
def test_service_chart_covers_the_last_hour_and_marks_missing_samples(cast: Cast, sign_in: SignIn) -> None:
    workload = workloads.submit(actor=cast.dave, document=document(), project=cast.vision)
    service = Service.objects.get(workload=workload)
    for minutes in (0.25, 1, 2, 20, 21):
        MetricsPoint.objects.create(
            service=service, at=make.ago(minutes=minutes), engines=1, reporting=1,
            values={"avg_token_usage": 0.5},
        )  # fmt: skip
    text = page(sign_in("dave"), "/services/chat?tab=metrics")
    assert min(filled_ranges(text, "used")) > 600, "the hour before the first sample stays empty"
    assert not [place for place in filled_ranges(text, "used") if 700 < place < 950], (
        "19 minutes without samples"
    )
    unknown = re.search(r'<path class="gap" d="([^"]+)"', text)
    assert unknown is not None
    assert [int(x) for x, y in re.findall(r"[ML ](\d+) (\d+)", unknown[1]) if int(y) == HEIGHT] == [
        pytest.approx(967, abs=20), pytest.approx(683, abs=20),
    ]  # fmt: skip


@pytest.mark.heavy
def test_resources_without_a_request_are_labelled(cast: Cast, sign_in: SignIn, pod: Pod) -> None:
    Allocation.objects.filter(pod=pod).update(cpu_milli=0, memory_mib=0)
    make.used(pod, 25, cpu=4, memory=0)
    make.past_utilization(pod, make.ago(minutes=3), gpus=1, busy=50)
    for path in (f"/workloads/{pod.workload_id}", f"/workloads/{pod.workload_id}/resources"):
        text = page(sign_in("erin"), path)
        assert text.count("none requested") == 2, path
        assert "cores, none requested" in text, path
        assert "&lt; 1 MiB" in text, path
        assert "of 0" not in text, path
