"""Tests for the card at the top of a failed workload's page."""

import re
from datetime import timedelta

import pytest
from django.test import Client

from berth.core.wording.words import format_gpu_time
from berth.server.web import numbers
from pools.models import Node
from projects.models import Pod, Workload
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn, submit_array

CARD = 'aria-labelledby="failure-title"'


def failed(cast: Cast, message: str) -> Workload:
    begun = make.ago(minutes=9)
    return make.workload(cast.vision, "train", phase="failed", run=1, started_at=begun, message=message)


def end(pod: Pod, seconds: int, **columns: object) -> None:
    ended = pod.started_at + timedelta(seconds=seconds) if pod.started_at else None
    Pod.objects.filter(pk=pod.pk).update(ended_at=ended, **columns)


def test_failed_workload_page_begins_with_the_pod_that_failed_first(cast: Cast, sign_in: SignIn) -> None:
    workload = failed(
        cast, "Pod worker-1 ended with exit code 3. A retry rule ends the workload after exit code 3."
    )
    node = make.node(cast.pool, gpus=2)
    pods = [
        make.place(workload, node, [device], state="failed", ended_at=make.ago(), exit_code=3 - device)
        for device in (1, 0)
    ]
    end(pods[0], 40, exit_code=143)
    end(pods[1], 30, exit_code=3)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    title = (
        f'Pod worker-1 ended with exit code 3 on <span class="unbroken">{node.name}</span> after 30 s</h2>'
    )
    assert title in page
    assert page.count("A retry rule ends the workload after exit code 3.") == 1, "only in the card"
    assert f'<option value="{pods[1].pk}" selected data-ended>' in page
    viewed = sign_in("erin").get(f"/workloads/{workload.pk}").content.decode()
    assert CARD in viewed and "Edit a copy" not in viewed


def test_failed_workload_page_states_the_work_lost_since_its_last_checkpoint(
    cast: Cast, sign_in: SignIn
) -> None:
    workload, began, ended = failed(cast, "Pod worker-0 ended."), make.ago(hours=3), make.ago(hours=1)
    workload.started_at, workload.ended_at = began, ended
    make.place(workload, make.node(cast.pool), [0], state="failed", ended_at=make.ago(), exit_code=1)
    row, client = Workload.objects.filter(pk=workload.pk), sign_in("dave")
    page = client.get(f"/workloads/{workload.pk}").content.decode()
    assert "2.0 GPU-h of work lost, no checkpoint in this run." in page
    row.update(last_checkpoint_at=began - timedelta(hours=4))
    page = client.get(f"/workloads/{workload.pk}").content.decode()
    assert "2.0 GPU-h of work lost, no checkpoint in this run." in page, "it belongs to an earlier run"
    row.update(last_checkpoint_at=ended - timedelta(minutes=30))
    page = client.get(f"/workloads/{workload.pk}").content.decode()
    assert "30 GPU-min of work lost since the checkpoint of <time" in page


def test_lost_work_counts_the_pods_of_an_elastic_run_only_while_they_ran(cast: Cast, sign_in: SignIn) -> None:
    workload, began, ended = failed(cast, "Pod worker-0 ended."), make.ago(hours=2), make.ago(hours=1)
    workload.started_at, workload.ended_at = began, ended
    node = make.node(cast.pool, gpus=8)
    for devices, from_minute, to_minute in (([0, 1], 0, 60), ([2, 3, 4, 5], 20, 22), ([6], None, 30)):
        pod = make.place(workload, node, devices, state="failed", ended_at=ended, exit_code=1)
        started = None if from_minute is None else began + timedelta(minutes=from_minute)
        Pod.objects.filter(pk=pod.pk).update(
            started_at=started, ended_at=began + timedelta(minutes=to_minute)
        )
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert "2.1 GPU-h of work lost" in page, "2 GPUs for 1 h, 4 for 2 min, and 1 that never ran"


def test_page_shows_the_workload_message_if_no_pod_failed(cast: Cast, sign_in: SignIn) -> None:
    workload = failed(cast, "The repository cannot be fetched: not found.")
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert "The repository cannot be fetched: not found</h2>" in page
    Workload.objects.filter(pk=workload.pk).update(phase="completed")
    assert CARD not in sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()


def test_pod_that_failed_first_has_its_own_row_above_the_other_pods(cast: Cast, sign_in: SignIn) -> None:
    workload = failed(cast, "Pod worker-1 ended with exit code 1.")
    node = make.node(cast.pool, gpus=3)
    pods = [
        make.place(workload, node, [device], state="failed", exit_code=1, ended_at=make.ago())
        for device in range(3)
    ]
    for pod, seconds in zip(pods, (40, 30, 35), strict=True):
        end(pod, seconds)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    table = page.partition('<caption class="visually-hidden">Pods</caption>')[2].partition("</table>")[0]
    words = " ".join(re.sub(r"<[^>]+>", " ", table.partition("<tbody>")[2]).split())
    assert words.startswith("worker-1 rank 1 Failed failed first, exit code 1"), words
    assert "worker-0, worker-2 2 pods, ranks 0, 2 Failed exit code 1" in words
    assert table.count('data-label="Ended"') == table.count('data-style="event"') == 2, "times with seconds"
    assert "terminated" not in table
    type(node).objects.filter(pk=node.pk).update(state="ended", ended_at=make.ago())
    assert "node no longer exists</span>" in sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()


def test_page_states_the_cause_if_a_pod_could_not_start_or_was_killed_by_a_signal(
    cast: Cast, sign_in: SignIn
) -> None:
    workload = failed(cast, "Pod worker-0 could not be started: the image was not found.")
    node = make.node(cast.pool, gpus=2)
    pod = make.place(workload, node, [0], state="failed", ended_at=make.ago())
    Pod.objects.filter(pk=pod.pk).update(started_at=None)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert f'Pod worker-0 could not be started on <span class="unbroken">{node.name}</span></h2>' in page
    assert '<p class="wrap">The image was not found.</p>' in page
    Workload.objects.filter(pk=workload.pk).update(message="Pod worker-0 ended by signal 9.")
    end(pod, 7, signal=9, started_at=pod.started_at)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert f'Pod worker-0 ended by signal 9 on <span class="unbroken">{node.name}</span> after 7 s' in page


@pytest.mark.parametrize("tab", ["", "/logs", "/timeline"])
def test_failed_workload_has_the_same_actions_on_every_tab(tab: str, cast: Cast, sign_in: SignIn) -> None:
    workload = failed(cast, "The repository cannot be fetched: not found.")
    page = sign_in("dave").get(f"/workloads/{workload.pk}{tab}").content.decode()
    assert [page.count(f'id="{action}"') for action in ("resubmit", "copy")] == [1, 1]
    assert page.count("Edit a copy") == 1


def test_tiny_amounts_are_shown_as_less_than_the_smallest_displayed_number() -> None:
    assert [numbers.duration(seconds) for seconds in (0, 0.28, 1, 59.9)] == ["0 s", "< 1 s", "1 s", "59 s"]
    assert [numbers.elapsed(seconds) for seconds in (0, 0.28, 1, None)] == [
        "< 1 s", "< 1 s", "1 s", numbers.NO_VALUE,
    ]  # fmt: skip
    assert [format_gpu_time(seconds) for seconds in (0, 2.9, 3, 3600)] == [
        "0 GPU-min", "< 0.1 GPU-min", "0.1 GPU-min", "1.0 GPU-h",
    ]  # fmt: skip
    assert [numbers.hours(value) for value in (0.0, 7.9e-05, 0.001, 0.25)] == [
        "0.0",
        "< 0.001",
        "0.001",
        "0.25",
    ]


def test_workload_that_ended_immediately_shows_a_duration_under_one_second(
    cast: Cast, sign_in: SignIn
) -> None:
    workload = failed(cast, "The program was not found.")
    Workload.objects.filter(pk=workload.pk).update(ended_at=workload.started_at)
    client = sign_in("dave")
    facts = client.get(f"/workloads/{workload.pk}").content.decode().partition(">Duration</dt>")[2]
    assert facts.startswith("<dd>&lt; 1 s</dd>")
    rows = client.get("/workloads?state=failed&columns=state,runtime").content.decode()
    assert "&lt; 1 s" in rows and ">0 s" not in rows


def test_page_names_other_visible_workloads_that_failed_on_the_same_node(cast: Cast, sign_in: SignIn) -> None:
    node, other_node = (
        make.node(cast.pool, name=name, gpus=8, cpu_milli=64_000, memory_mib=65_536)
        for name in ("one", "two")
    )
    places = (
        (cast.vision, "train", node, 1), (cast.vision, "same", node, 2), (cast.vision, "old", node, 30),
        (cast.vision, "elsewhere", other_node, 2), (cast.ads, "hidden", node, 2),
    )  # fmt: skip
    rows = {}
    for device, (project, name, place, hours) in enumerate(places):
        ended = make.ago(hours=hours)
        rows[name] = make.workload(
            project, name, phase="failed", run=1, message="Pod worker-0 ended.", ended_at=ended
        )
        make.place(rows[name], place, [device], state="failed", ended_at=ended, exit_code=1)
    page = sign_in("dave").get(f"/workloads/{rows['train'].pk}").content.decode()
    note = page.partition('id="other-failures">')[2].partition("</p>")[0]
    assert note == (
        "<span>1 other workload failed on one within a day:</span> "
        f'<a href="/workloads/{rows["same"].pk}">vision/same</a>.'
    )
    alone = sign_in("dave").get(f"/workloads/{rows['elsewhere'].pk}").content.decode()
    assert 'id="other-failures"' not in alone


def _fail_on(workload: Workload, node: Node, device: int, **ago: float) -> None:
    """Let the workload's current run fail on the node."""
    ended = make.ago(**ago)
    make.place(workload, node, [device], state="failed", ended_at=ended, exit_code=1)
    Workload.objects.filter(pk=workload.pk).update(
        phase="failed", run=workload.run, ended_at=ended, held=False
    )


def _other_failures(client: Client, workload: Workload) -> str:
    page = client.get(f"/workloads/{workload.pk}").content.decode()
    note = page.partition('id="other-failures">')[2].partition("</p>")[0]
    return re.sub("<[^>]+>", "", note)


def test_failure_in_an_earlier_run_is_not_counted_for_the_node(cast: Cast, sign_in: SignIn) -> None:
    one, two = (
        make.node(cast.pool, name=name, gpus=8, cpu_milli=64_000, memory_mib=65_536)
        for name in ("one", "two")
    )
    train = make.workload(cast.vision, "train", phase="failed", run=1)
    _fail_on(train, one, 0)
    retried = make.workload(cast.vision, "retried", phase="failed", run=1)
    _fail_on(retried, one, 1, hours=2)
    assert "vision/retried" in _other_failures(sign_in("dave"), train)
    retried.run = 2
    _fail_on(retried, two, 1, hours=1)
    assert _other_failures(sign_in("dave"), train) == ""


def test_tasks_of_an_array_count_as_one_failure_on_the_node(cast: Cast, sign_in: SignIn) -> None:
    node = make.node(cast.pool, name="one", gpus=8, cpu_milli=64_000, memory_mib=65_536)
    train = make.workload(cast.vision, "train", phase="failed", run=1)
    _fail_on(train, node, 0)
    tasks = list(Workload.objects.filter(array=submit_array(cast, "sweep", 3)).order_by("array_index"))
    for device, task in enumerate(tasks, 1):
        _fail_on(task, node, device, hours=device)
    client = sign_in("dave")
    assert _other_failures(client, train) == "1 other workload failed on one within a day: vision/sweep."
    assert _other_failures(client, tasks[0]) == "1 other workload failed on one within a day: vision/train."
    for device in range(4, 7):
        _fail_on(make.workload(cast.vision, f"w{device}", phase="failed", run=1), node, device, hours=device)
    names = "vision/sweep, vision/w4, vision/w5"
    assert _other_failures(client, train) == (
        f"More than 3 other workloads failed on one within a day, including {names}."
    )


def test_failed_workload_header_is_the_same_on_all_tabs(cast: Cast, sign_in: SignIn) -> None:
    workload, client = failed(cast, "Pod worker-0 ended with exit code 1."), sign_in("dave")
    make.place(workload, make.node(cast.pool), [0], state="failed", ended_at=make.ago(), exit_code=1)
    Workload.objects.filter(pk=workload.pk).update(exit_code=1)
    heads = set()
    for tab in ("", "/metrics", "/timeline", "/spec"):
        page = client.get(f"/workloads/{workload.pk}{tab}").content.decode()
        head = page.partition('class="page-head"')[2].partition("</div>")[0]
        heads.add(" ".join(re.sub(r"<[^>]+>", " ", head).split()))
    [head] = heads
    assert f"pool {cast.pool.name}" in head and head.endswith(") exit code 1")


@pytest.mark.parametrize("tab", ["", "/logs", "/metrics", "/resources"])
def test_out_of_memory_message_is_in_the_header_of_every_tab(tab: str, cast: Cast, sign_in: SignIn) -> None:
    message = "Pod worker-0 ended by signal 9: killed at its memory limit: limit 64 MiB, peak 64 MiB."
    workload = failed(cast, message)
    make.place(workload, make.node(cast.pool), [0], state="failed", ended_at=make.ago(), exit_code=137)
    row = Workload.objects.filter(pk=workload.pk)
    row.update(reason="OutOfMemory", exit_code=137)

    def head() -> str:
        page = sign_in("dave").get(f"/workloads/{workload.pk}{tab}").content.decode()
        return page.partition('class="page-head"')[2].partition("</div>")[0]

    assert ">Pod worker-0 ended by signal 9: killed at its memory limit: limit 64 MiB, peak" in head()
    assert (f'title="{message}"' in head()) == (tab != ""), "a card of the overview states the whole message"
    row.update(reason="PodFailed")
    assert ">exit code 137</span>" in head()
