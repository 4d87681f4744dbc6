"""Tests for the cost of an eviction and the utilization by pod on the page of a running workload."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from scheduler.reports.what_if.smallest_change import RenderedChange
from scheduler.web.workloads import pages
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


def _facts_text(page: str) -> str:
    card = page.partition('aria-labelledby="facts-title"')[2].partition("</section>")[0]
    return " ".join(re.sub(r"<[^>]+>", " ", card).split())


def test_running_workload_page_shows_how_much_work_an_eviction_would_lose(
    cast: Cast, sign_in: SignIn
) -> None:
    node = make.node(cast.pool, gpus=4)
    started = timezone.now() - timedelta(hours=3)
    facts: dict[str, str] = {}
    for name, preemptible, saved in (
        ("saved", True, make.ago(minutes=30)), ("unsaved", True, None), ("earlier", True, make.ago(hours=5)),
        ("fixed", False, None),
    ):  # fmt: skip
        row = make.workload(
            cast.vision, name, phase="running", run=1, started_at=started, last_checkpoint_at=saved,
            preemptible=preemptible,
        )  # fmt: skip
        make.place(row, node, [len(facts)])
        facts[name] = _facts_text(sign_in("dave").get(f"/workloads/{row.pk}").content.decode())
    assert "If evicted now 30 GPU-min of work lost" in facts["saved"]
    assert "If evicted now 3.0 GPU-h of work lost (no checkpoint in this run)" in facts["unsaved"]
    assert "If evicted now 3.0 GPU-h of work lost (no checkpoint in this run)" in facts["earlier"]
    assert "If evicted now" not in facts["fixed"]


def test_replicas_added_during_a_run_lose_only_their_own_work(cast: Cast, sign_in: SignIn) -> None:
    row = make.workload(
        cast.vision, "elastic", phase="running", run=1, started_at=make.ago(hours=3), preemptible=True
    )
    node = make.node(cast.pool, gpus=2)
    make.place(row, node, [0])
    added = make.place(row, node, [1], index=1)
    added.started_at = make.ago(minutes=30)
    added.save(update_fields=["started_at"])
    facts = _facts_text(sign_in("dave").get(f"/workloads/{row.pk}").content.decode())
    assert "If evicted now 3.5 GPU-h of work lost" in facts


@pytest.mark.parametrize("step", ["cancel", "suspend"])
def test_cancel_and_suspend_dialogs_show_how_much_work_would_be_lost(
    step: str, cast: Cast, sign_in: SignIn
) -> None:
    node, dialogs = make.node(cast.pool, gpus=4), list[str]()
    for index, (saved, spec) in enumerate((
        (make.ago(minutes=30), {"grace_period_seconds": 90}),
        (None, {"preemption": {"signal": "SIGUSR1", "lead": "2m"}}),
        (make.ago(seconds=-5), {"grace_period_seconds": 0}),
    )):  # fmt: skip
        row = make.workload(
            cast.vision, f"train-{index}", phase="running", run=1, started_at=make.ago(hours=3),
            last_checkpoint_at=saved, preemptible=False,
        )  # fmt: skip
        row.spec |= spec
        row.save()
        make.place(row, node, [index])
        dialog = sign_in("carol").get(f"/workloads/{row.pk}/{step}").content.decode()
        text = re.sub(r"<[^>]+>", " ", dialog.partition("<form class")[2].partition("</form>")[0])
        dialogs.append(" ".join(text.split()))
    saved_text, unsaved_text, fresh = dialogs
    assert "30 GPU-min of work will be lost. Last checkpoint:" in saved_text
    assert "The pods have 1 min 30 s to stop." in saved_text
    assert "3.0 GPU-h of work will be lost. This run has no checkpoint." in unsaved_text
    seconds = "2 min 30 s" if step == "suspend" else "30 s"
    assert f"The pods have {seconds} to stop." in unsaved_text, "a suspension sends the notice first"
    assert "will be lost" not in fresh and "The pods are killed at once." in fresh


def test_smallest_change_card_without_a_change_links_to_the_edit_page(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = RenderedChange("no_change", "No single change would start the workload now.")
    monkeypatch.setattr(pages, "find_smallest_change", lambda *_, **__: answer)
    workload = make.workload(cast.vision, "train", phase="pending", by=cast.dave.user)
    address = f"/workloads/{workload.pk}/smallest-change"
    client = sign_in("dave")
    link = f'<a href="/workloads/{workload.pk}/edit">Try several changes</a>'
    card = client.get(address).content.decode()
    assert link in card and answer.sentence in card and 'class="button' not in card
    assert link not in sign_in("erin").get(address).content.decode()
    workload.explanation = {"expected_start": make.ago(minutes=-30).isoformat()}
    workload.save()
    card = client.get(address).content.decode()
    assert link in card and answer.sentence in card


def test_running_workload_page_names_the_least_used_pod(cast: Cast, sign_in: SignIn) -> None:
    node = make.node(cast.pool, gpus=8)
    row = make.workload(cast.vision, "gang", phase="running", run=1, started_at=make.ago(hours=1))
    for index, busy in enumerate((80, 35, 90)):
        make.used(make.place(row, node, [index], index=index), busy)
    client = sign_in("dave")
    for address in (f"/workloads/{row.pk}", f"/workloads/{row.pk}/utilization?part=strip"):
        page = client.get(address).content.decode()
        link = f"/workloads/{row.pk}/resources#use-worker-1"
        assert f'lowest 35%: <a href="{link}">worker-1</a>' in page
        bars = page.partition('class="card-body pod-bars"')[2].partition("</div>")[0]
        assert re.findall(r">(worker-\d)</a>.*?(\d+)%", bars) == [
            ("worker-0", "80"), ("worker-1", "35"), ("worker-2", "90"),
        ]  # fmt: skip
        assert bars.count("lowest") == 1
    assert 'id="use-worker-1"' in client.get(f"/workloads/{row.pk}/resources").content.decode()


def test_running_workload_page_counts_other_pods_with_the_lowest_utilization(
    cast: Cast, sign_in: SignIn
) -> None:
    node = make.node(cast.pool, gpus=8, cpu_milli=64_000, memory_mib=65_536)
    pages: list[str] = []
    for name, uses in (("tied", (60, 60, 90)), ("equal", (60, 60))):
        row = make.workload(cast.vision, name, phase="running", run=1, started_at=make.ago(hours=1))
        for index, busy in enumerate(uses):
            make.used(make.place(row, node, [3 * len(pages) + index], index=index), busy)
        pages.append(sign_in("dave").get(f"/workloads/{row.pk}").content.decode())
    tied, equal = pages
    assert re.search(r"lowest 60%: <a [^>]*>worker-0</a>(<span class=.wide-only.>)? and 1 other</", tied)
    assert tied.count('<span class="tag">lowest</span>') == 2
    assert "lowest 60%" not in equal and '<span class="tag">lowest</span>' not in equal


def test_large_gang_page_shows_bars_for_the_least_used_pods(cast: Cast, sign_in: SignIn) -> None:
    node = make.node(cast.pool, gpus=20, cpu_milli=40_000, memory_mib=100_000)
    row = make.workload(cast.vision, "gang", phase="running", run=1, started_at=make.ago(hours=1))
    for index in range(20):
        make.used(make.place(row, node, [index], index=index), 50 + index)
    page = sign_in("dave").get(f"/workloads/{row.pk}").content.decode()
    assert "of the 16 least utilized of 20 pods" in page
    bars = page.partition('class="card-body pod-bars"')[2].partition("</div>")[0]
    assert [int(percent) for percent in re.findall(r"(\d+)%</span>", bars)] == list(range(50, 66))
