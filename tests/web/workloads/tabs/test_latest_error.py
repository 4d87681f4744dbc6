"""Tests for the link to the latest error in the header of a running workload."""

import html
import re
from datetime import datetime, timedelta

import pytest

from pools.runtimes.base import LogChunk, RuntimeFailure
from projects.models import Workload
from tests import factories as make
from tests.cast import Cast
from tests.fakes.runtime import FakeRuntime
from tests.web.conftest import SignIn
from tests.web.workloads.tabs.test_log_pages import path, runtime, start_pod

__all__ = ["runtime"]


@pytest.mark.parametrize(
    ("log", "text", "line"),
    [
        (b"step\nERROR one\nstep\n", "1 error TIME", 2),
        (b"Traceback (most recent call last):\n  a.py\nOSError\nKilled\n", "2 errors, latest TIME", 4),
        (b"ERROR one\n" * 300 + b"step\n" * 400, "Latest error TIME", 300),
    ],
)  # fmt: skip
def test_link_opens_the_log_at_the_latest_error(
    cast: Cast, sign_in: SignIn, runtime: FakeRuntime, log: bytes, text: str, line: int
) -> None:
    pod = start_pod(cast, runtime, log)
    answer = sign_in("erin").get(path(pod, "/latest-error")).content.decode()
    written = re.search('<time datetime="([^"]+)" data-style="ago"', answer)
    assert written and abs(datetime.fromisoformat(written[1]) - runtime.clock.now()) < timedelta(minutes=1)
    answer = re.sub("<time.*?</time>", "TIME", answer)
    link = re.search(r'<a class="(bad|warn)" href="([^"]+)">([^<]+)</a>(.*)', answer)
    offset = len(b"\n".join(log.split(b"\n")[: line - 1])) + 1
    address = f"/workloads/{pod.workload_id}/logs#pod={pod.pk}&line={line}&at={offset}"
    assert link and (html.unescape(link[2]), link[3]) == (address, f"{text}, line {line}")
    is_last_line = log.endswith(b"Killed\n")
    assert (link[1], link[4].strip()) == (("bad", "") if is_last_line else ("warn", ", run continues"))
    assert sign_in("grace").get(path(pod, "/latest-error")).status_code == 404


def test_error_link_is_shown_only_for_recent_errors_of_running_workloads(
    cast: Cast, sign_in: SignIn, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, client = start_pod(cast, runtime, b"ERROR one\n" + b"step\n" * 600), sign_in("dave")
    assert client.get(path(pod, "/latest-error")).content.strip() == b""
    runtime.write(str(pod.pk), b"ERROR two\n")
    monkeypatch.setattr(runtime, "read_log_times", lambda *_: ())
    assert b"Latest error at line 602" in client.get(path(pod, "/latest-error")).content
    Workload.objects.filter(pk=pod.workload_id).update(phase="completed", ended_at=make.ago())
    assert client.get(path(pod, "/latest-error")).content.strip() == b""


def test_error_link_is_hidden_while_the_runtime_is_unreachable(
    cast: Cast, sign_in: SignIn, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, client = start_pod(cast, runtime, b"ERROR one\n"), sign_in("dave")

    def fail(*_: object) -> None:
        raise RuntimeFailure("no route to host")

    monkeypatch.setattr(runtime, "read_log", fail)
    answer = client.get(path(pod, "/latest-error"))
    assert (answer.status_code, answer.content.strip()) == (200, b"")


def test_only_the_end_of_a_long_log_is_read_for_the_link(
    cast: Cast, sign_in: SignIn, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = b"ERROR one\n" * 90_000
    pod, client, limits, read_log = (
        start_pod(cast, runtime, log),
        sign_in("dave"),
        list[int](),
        runtime.read_log,
    )

    def count(pod_id: str, offset: int, limit: int) -> LogChunk:
        limits.append(limit)
        return read_log(pod_id, offset, limit)

    monkeypatch.setattr(runtime, "read_log", count)
    answer = re.sub("<time.*?</time>", "TIME", client.get(path(pod, "/latest-error")).content.decode())
    assert f'#pod={pod.pk}&amp;at={len(log) - 10}">Latest error TIME</a>' in answer
    assert 0 < sum(limits) < 256 * 1024


def test_header_with_an_error_link_is_the_same_on_all_tabs(
    cast: Cast, sign_in: SignIn, runtime: FakeRuntime
) -> None:
    pod, client = start_pod(cast, runtime, b"ERROR one\n"), sign_in("dave")
    tabs = ("", "/logs", "/metrics", "/outputs", "/resources", "/timeline", "/spec")
    pages = {tab: client.get(f"/workloads/{pod.workload_id}{tab}").content.decode() for tab in tabs}
    heads = {
        tab: re.findall(r'<p class="head-facts">.*?</p>', page, re.DOTALL) for tab, page in pages.items()
    }
    assert {tab: head for tab, head in heads.items() if head != heads[""]} == {}
    assert "/latest-error" in heads[""][0]
