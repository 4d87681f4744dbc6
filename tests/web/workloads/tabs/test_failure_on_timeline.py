"""Tests for the Timeline tab of a failed workload."""

import html
import re
from datetime import datetime

import pytest

from projects.models import Pod, Workload
from tests import factories as make
from tests.cast import Cast
from tests.fakes.runtime import FakeRuntime
from tests.web.conftest import SignIn
from tests.web.workloads.tabs.test_log_pages import path, runtime, start_pod
from tests.web.workloads.tabs.test_timeline import record_event

__all__ = ["runtime"]


def failed(cast: Cast, *, last_checkpoint_at: datetime | None = None) -> Workload:
    workload = make.workload(
        cast.vision, "train", phase="failed", run=1, started_at=make.ago(minutes=50),
        ended_at=make.ago(minutes=10), last_checkpoint_at=last_checkpoint_at,
    )  # fmt: skip
    record_event(workload, "submitted", "Submitted by dave.", 60)
    record_event(workload, "running", "All pods run.", 50)
    record_event(workload, "stopping", "Pod worker-0 ended with exit code 1.", 11)
    record_event(workload, "failed", "Pod worker-0 ended with exit code 1.", 10)
    return workload


@pytest.mark.parametrize(
    ("checkpoint", "lost_minutes"), [(None, 39), (31, 20), (70, 39)], ids=["none", "in this run", "earlier"]
)
def test_bar_of_a_failed_workload_marks_the_failure_and_the_lost_work(
    checkpoint: int | None, lost_minutes: int, cast: Cast, sign_in: SignIn
) -> None:
    saved = None if checkpoint is None else make.ago(minutes=checkpoint)
    workload = failed(cast, last_checkpoint_at=saved)
    page = sign_in("dave").get(f"/workloads/{workload.pk}/timeline")
    bar = page.context["timeline"].periods
    losses = [each.period for each in bar.segments if each.is_lost]
    assert [round(each.duration.total_seconds() / 60) for each in losses] == [lost_minutes]
    assert ("failed", 100) in [(mark.text, mark.x) for mark in bar.marks]
    rooms = [each.room for each in bar.segments if each.state == "running"]
    assert rooms == ["narrow" if lost_minutes < 39 else ""], "no text on the stripes"
    text = page.content.decode()
    assert re.search(r'<text class="failure"[^>]*>failed \d\d:\d\d</text>', text)
    assert '<line class="failure" x1="100' in text and '<i class="lost"></i>work lost' in text


def test_bar_of_a_workload_without_gpus_or_a_failure_shows_no_lost_work(cast: Cast, sign_in: SignIn) -> None:
    workload, client = failed(cast), sign_in("dave")
    for columns, mark in (({"gpu_milli_min": 0}, "failed"), ({"phase": "completed"}, "")):
        Workload.objects.filter(pk=workload.pk).update(**columns)
        bar = client.get(f"/workloads/{workload.pk}/timeline").context["timeline"].periods
        assert not bar.has_lost_work and [each.text for each in bar.marks] == ([mark] if mark else [])


@pytest.mark.parametrize(
    ("log", "text", "line"),
    [
        (b"loading\nRuntimeError: <no> CUDA device\nbye\n\n", "RuntimeError: <no> CUDA device", 2),
        (b"step 1\nstep 2\n", "step 2", 2),
        (b"ERROR one\n" + b"step\n" * 700, "step", 701),
    ],
)  # fmt: skip
def test_failed_event_shows_the_last_error_with_a_link_to_its_line(
    cast: Cast, sign_in: SignIn, runtime: FakeRuntime, log: bytes, text: str, line: int
) -> None:
    pod, client = start_pod(cast, runtime, log), sign_in("erin")
    assert client.get(path(pod, "/failure-line")).content.strip() == b"", "it has not failed"
    Pod.objects.filter(pk=pod.pk).update(state="failed", exit_code=1, ended_at=make.ago())
    Workload.objects.filter(pk=pod.workload_id).update(phase="failed", ended_at=make.ago())
    record_event(pod.workload, "failed", "Pod worker-0 ended with exit code 1.", 1)
    page = client.get(f"/workloads/{pod.workload_id}/timeline").content.decode()
    assert page.count(f'hx-get="/workloads/{pod.workload_id}/log/failure-line"') == 1
    answer = client.get(path(pod, "/failure-line")).content.decode()
    link = r'<code id="failure-line">([^<]*)</code> <a class="nowrap" href="([^"]*)">([^<]*)'
    shown = re.search(link, answer)
    assert shown
    offset = len(b"\n".join(log.split(b"\n")[: line - 1])) + 1
    address = f"/workloads/{pod.workload_id}/logs#pod={pod.pk}&line={line}&at={offset}"
    assert [html.unescape(each) for each in shown.groups()] == [text, address, f"Line {line} of worker-0"]
    assert sign_in("grace").get(path(pod, "/failure-line")).status_code == 404
