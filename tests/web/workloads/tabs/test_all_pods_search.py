"""Tests for the search of the logs of all pods of a run."""

import html
import re
from types import SimpleNamespace

import pytest

from pools.runtimes.base import PodSpec
from projects.models import Pod
from scheduler.reports.log_search import LinePosition, LogMatches
from tests import factories as make
from tests.cast import Cast
from tests.fakes.runtime import FakeRuntime
from tests.web.conftest import SignIn
from tests.web.workloads.tabs.test_log_pages import path, runtime, start_pod

__all__ = ["runtime"]


def test_search_of_all_pods_shows_the_pod_of_each_line(
    cast: Cast, sign_in: SignIn, runtime: FakeRuntime
) -> None:
    pod = start_pod(cast, runtime, b"one\nloss is nan\n")
    node = make.node(cast.pool, gpus=2)
    for index, text in ((1, b"fine\n"), (2, b"loss is nan\nloss is nan\n")):
        other = make.place(pod.workload, node, [index - 1], index=index)
        runtime.start(PodSpec(str(other.pk), other.name, "w", ("true",), {}, None, "i-0", (), 5))
        runtime.write(str(other.pk), text)
    client = sign_in("dave")
    alone = client.get(path(pod, "/search", text="nan")).content.decode()
    assert "1 matching line in worker-0, run 2:" in alone and "data-log-scope" not in alone
    offer = client.get(path(pod, "/search", text="missing")).content.decode()
    assert "data-log-scope>Search all pods<" in offer, "a search without matches offers to search all pods"
    answer = client.get(path(pod, "/search", text="nan", all_pods="on")).content.decode()
    assert "3 matching lines in 3 pods, run 2:" in answer
    named = re.findall(r'data-log-name="([^"]+)" aria-label="Show line (\d+)', answer)
    assert named == [("worker-0", "2"), ("worker-2", "1"), ("worker-2", "2")]
    assert sign_in("grace").get(path(pod, "/search", text="nan", all_pods="on")).status_code == 404


def totals(answer: str) -> list[str]:
    """Return the numbers of matches that a response states."""
    return re.findall(r'<span id="log-total"[^>]*>([^<]*)</span>', answer)


def write_lines(cast: Cast, runtime: FakeRuntime, *counts: int) -> Pod:
    """Start a pod for each count and write that number of lines to its log."""
    pod = start_pod(cast, runtime, b"nan\n" * counts[0])
    for index, count in enumerate(counts[1:], start=1):
        other = make.place(pod.workload, make.node(cast.pool), [0], index=index)
        runtime.start(PodSpec(str(other.pk), other.name, "w", ("true",), {}, None, "i-0", (), 5))
        runtime.write(str(other.pk), b"nan\n" * count)
    return pod


def test_search_of_more_pods_than_the_limit_states_how_many_were_searched(
    cast: Cast, sign_in: SignIn, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.web.workloads.logs.log.MAX_PODS", 2)
    pod = write_lines(cast, runtime, 0, 0, 1)
    answer = sign_in("dave").get(path(pod, "/search", text="nan", all_pods="on")).content.decode()
    assert 'No matches<span class="long"> in 3 pods, run 2<' in answer and "(2 of 3 pods searched)" in answer


def test_search_of_all_pods_does_not_count_partly_searched_logs(
    cast: Cast, sign_in: SignIn, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_part = LogMatches(matches=1, lines=(), size=10, searched_bytes=5, resume_at=LinePosition(5, 2))
    monkeypatch.setattr("scheduler.web.workloads.logs.all_pods_search.search_log", lambda *_, **__: in_part)
    pod = write_lines(cast, runtime, 1, 1)
    answer = sign_in("dave").get(path(pod, "/search", text="nan", all_pods="on")).content.decode()
    assert "(0 of 2 pods searched)" in answer


@pytest.mark.parametrize(("counts", "shown"), [((50, 50), (15, 15)), ((2, 50), (2, 28))])
def test_search_of_all_pods_lists_lines_of_each_pod(
    counts: tuple[int, ...], shown: tuple[int, ...], cast: Cast, sign_in: SignIn, runtime: FakeRuntime
) -> None:
    pod = write_lines(cast, runtime, *counts)
    answer = sign_in("dave").get(path(pod, "/search", text="nan", all_pods="on")).content.decode()
    assert tuple(answer.count(f'data-log-name="worker-{index}"') for index in (0, 1)) == shown
    assert totals(answer) == [str(sum(counts))], "the number of matches to step through"


def test_search_of_all_pods_continues_until_every_line_is_listed(
    cast: Cast, sign_in: SignIn, runtime: FakeRuntime
) -> None:
    pod = write_lines(cast, runtime, 2, 50, 25)
    client, address = sign_in("dave"), path(pod, "/search", text="nan", all_pods="on")
    listed, pages = [], 0
    while address:
        answer = client.get(address).content.decode()
        listed += re.findall(r'data-log-name="([^"]+)" aria-label="Show line (\d+)', answer)
        link = re.search(r'hx-get="([^"]+)"', answer)
        address, pages = html.unescape(link[1]) if link else "", pages + 1
        assert ("Show more matches" in answer) == bool(address)
    expected = [("worker-0", 2), ("worker-1", 50), ("worker-2", 25)]
    assert sorted(listed) == sorted(
        (name, str(line)) for name, count in expected for line in range(1, count + 1)
    )
    assert pages == 3
    assert client.get(path(pod, "/search", text="nan", all_pods="on", cursor="x.1-1,y")).status_code == 200


def test_search_over_several_requests_states_the_match_count_so_far(
    cast: Cast, sign_in: SignIn, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, client = write_lines(cast, runtime, 50, 30, 5), sign_in("dave")
    clock = SimpleNamespace(
        monotonic=iter([0.0, 1.0, 2.0, 100.0]).__next__
    )  # no time is left for the third pod
    stated = []
    with monkeypatch.context() as slow:
        slow.setattr("scheduler.web.workloads.logs.all_pods_search.time", clock)
        answer = client.get(path(pod, "/search", text="nan", all_pods="on")).content.decode()
    stated.append((*totals(answer), *re.findall(r"\(\d of \d pods searched\)", answer)))
    while link := re.search(r'data-log-more hx-get="([^"]+)"', answer):
        answer = client.get(html.unescape(link[1])).content.decode()
        stated.append((*totals(answer), *re.findall(r"\(\d of \d pods searched\)", answer)))
    assert stated == [("80+", "(2 of 3 pods searched)"), ("85",), ("85",), ("85",)]


@pytest.mark.parametrize("all_pods", [{}, {"all_pods": "on"}])
def test_continued_search_shows_the_match_list_after_its_first_match(
    cast: Cast,
    sign_in: SignIn,
    runtime: FakeRuntime,
    monkeypatch: pytest.MonkeyPatch,
    all_pods: dict[str, str],
) -> None:
    pod, client = write_lines(cast, runtime, 3), sign_in("dave")
    none_yet = LogMatches(matches=0, lines=(), size=12, searched_bytes=4, resume_at=LinePosition(4, 2))
    with monkeypatch.context() as slow:
        for module in ("log", "all_pods_search"):
            slow.setattr(f"scheduler.web.workloads.logs.{module}.search_log", lambda *_, **__: none_yet)
        answer = client.get(path(pod, "/search", text="nan", **all_pods)).content.decode()
    link = re.search(r'hx-get="([^"]+)" hx-target="#log-matches" hx-swap="innerHTML"', answer)
    assert link and "Continue search" in answer
    answer = client.get(html.unescape(link[1])).content.decode()
    assert 'id="log-place"' in answer and 'class="log-all"' in answer and totals(answer) == ["2"]
