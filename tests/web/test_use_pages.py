"""Here we show that pages tell what is used beside what is held, and never nothing for unknown."""

import pytest
from django.utils import timezone

from projects.models import Pod, Workload
from scheduler.models import NodeUse
from tests import factories as make
from tests.cast import Cast


@pytest.fixture
def pod(cast: Cast) -> Pod:
    node = make.node(cast.pool, devices=["GPU-0", "GPU-1"], gpu_memory_mib=80 * 1024)
    work = make.workload(cast.vision, "train", phase="running", run=1, started_at=make.ago(hours=2))
    return make.place(work, node, [1])


def page(client, path: str) -> str:
    return client.get(path).content.decode()


def test_a_workloads_page_tells_what_is_used_and_draws_it(cast: Cast, sign_in, pod: Pod) -> None:
    make.used(pod, 25, cpu=500, memory=1024, gpu_memory=2048)
    make.used_then(pod, make.ago(minutes=3), gpus=1, busy=50, gpu_memory=2048)
    for path in (f"/workloads/{pod.workload_id}", f"/workloads/{pod.workload_id}/use?span=6h"):
        text = page(sign_in("erin"), path)
        for said in (
            "<dd>0.5</dd>", "of 2 cores", "<dd>1 GiB</dd>", "<dd>25 %</dd>", "GPU 1: 25 % busy, 2 GiB",
            "<svg",
        ):  # fmt: skip
            assert said in text, (path, said)
        assert "not measured" not in text
    assert sign_in("grace").get(f"/workloads/{pod.workload_id}/use").status_code == 404


def test_what_nobody_measured_is_said_to_be_unknown(cast: Cast, sign_in, pod: Pod) -> None:
    text = page(sign_in("dave"), f"/workloads/{pod.workload_id}")
    assert text.count("not measured") >= 4
    make.used(pod, None, gpu_memory=None)
    text = page(sign_in("dave"), f"/workloads/{pod.workload_id}/use")
    assert "<dd>1</dd><dd class=\"note\">of 2 cores" in text
    assert text.count('<span class="unmeasured">not measured') == 2, "of GPUs and of their memory"
    assert "0 %" not in text


def test_a_waiting_workload_has_no_use_to_tell_yet(cast: Cast, sign_in) -> None:
    waits = make.workload(cast.vision, "waits")
    text = page(sign_in("dave"), f"/workloads/{waits.pk}")
    assert 'id="use"' in text, "so that it can appear"
    assert "Resource use" not in text


def test_idle_gpus_are_told_on_the_page_and_in_the_list(cast: Cast, sign_in, pod: Pod) -> None:
    other = make.workload(cast.vision, "busy-one", phase="running", run=1, started_at=make.ago(hours=2))
    make.used(make.place(other, pod.node, [0]), 80)
    make.used(pod, 0, busy_at=make.ago(hours=2))
    client = sign_in("dave")
    assert "idle</strong> since" in page(client, f"/workloads/{pod.workload_id}")
    assert "idle</strong> since" not in page(client, f"/workloads/{other.pk}")
    assert page(client, "/workloads").count("GPUs idle") == 1


def test_a_nodes_page_tells_of_its_gpus(cast: Cast, sign_in, pod: Pod) -> None:
    make.used(pod, 25)
    path = f"/nodes/{pod.node.name}/use"
    assert "is not measured" in page(sign_in("grace"), path)
    NodeUse.objects.create(node=pod.node, at=timezone.now(), devices=[[0, 4], [255, 2048]])
    text = page(sign_in("grace"), path)
    assert "GPU 0: 0 % busy, 4 MiB" in text
    assert "GPU 1: 25.5 % busy, 2 GiB" in text
    assert "train" not in text, "whose work it is, is told to those who may know"
    assert path in page(sign_in("grace"), f"/nodes/{pod.node.name}")
    assert sign_in("grace").get("/nodes/none/use").status_code == 404
    for hidden in (path, f"/nodes/{pod.node.name}", f"/node-pools/{pod.node.pool.name}",
                   f"/node-pools/{pod.node.pool.name}/settings"):  # fmt: skip
        assert sign_in("frank").get(hidden).status_code == 404, hidden


def test_the_overview_tells_allocated_from_used(cast: Cast, sign_in, pod: Pod) -> None:
    client = sign_in("dave")
    assert "not busy" not in page(client, "/")
    pod.allocation.bound_at = make.ago(hours=3)
    pod.allocation.save()
    make.used_then(pod, make.ago(hours=1), step=3600, gpus=1, busy=75)
    answer = client.get("/")
    hour = answer.context["course"][1]
    assert (hour.held, hour.known, hour.busy) == (1, 1, 0.75)
    text = answer.content.decode()
    assert "0.8 GPU-hours allocated and busy" in text
    assert "allocated, not measured" in text


@pytest.mark.parametrize("span", ["1h", "7d", "", "x", "%00", "-1"])
def test_any_span_is_answered(cast: Cast, sign_in, pod: Pod, span: str) -> None:
    assert sign_in("dave").get(f"/workloads/{pod.workload_id}/use?span={span}").status_code == 200


def test_hours_of_what_has_ended_can_still_be_seen(cast: Cast, sign_in, pod: Pod) -> None:
    make.used_then(pod, make.ago(minutes=50), cpu=700)
    Pod.objects.update(state="succeeded", ended_at=make.ago(minutes=40))
    Workload.objects.filter(pk=pod.workload_id).update(phase="completed", ended_at=make.ago(minutes=40))
    text = page(sign_in("dave"), f"/workloads/{pod.workload_id}/use")
    assert "Processors: at most 0.70 cores used of 2.00 held" in text
    assert "every 15s" not in text
