"""Tests for the cost of an eviction and the lowest GPU on the page of a running workload."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from scheduler.reports.what_if.smallest_change import RenderedChange
from scheduler.web.workloads import pages
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


def _about(page: str) -> str:
    card = page.partition('aria-labelledby="facts-title"')[2].partition("</section>")[0]
    return " ".join(re.sub(r"<[^>]+>", " ", card).split())


def test_running_page_shows_the_work_that_an_eviction_now_would_lose(cast: Cast, sign_in: SignIn) -> None:
    node = make.node(cast.pool, gpus=3)
    started = timezone.now() - timedelta(hours=3)
    facts: dict[str, str] = {}
    for name, preemptible, saved in (
        ("saved", True, make.ago(minutes=30)), ("unsaved", True, None), ("fixed", False, None),
    ):  # fmt: skip
        row = make.workload(
            cast.vision, name, phase="running", run=1, started_at=started, last_checkpoint_at=saved,
            preemptible=preemptible,
        )  # fmt: skip
        make.place(row, node, [len(facts)])
        facts[name] = _about(sign_in("dave").get(f"/workloads/{row.pk}").content.decode())
    assert "If evicted now 30 GPU-min of work lost" in facts["saved"]
    assert "If evicted now 3.0 GPU-h of work lost (no checkpoint recorded)" in facts["unsaved"]
    assert "If evicted now" not in facts["fixed"]


def test_card_without_a_change_leads_to_the_edit_page(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = RenderedChange("no_change", "No single change would start the workload now.")
    monkeypatch.setattr(pages, "find_smallest_change", lambda *_: answer)
    workload = make.workload(cast.vision, "train", phase="pending", by=cast.dave.user)
    address = f"/workloads/{workload.pk}/smallest-change"
    client = sign_in("dave")
    link = f'<a href="/workloads/{workload.pk}/edit">edit page</a>'
    card = client.get(address).content.decode()
    assert link in card and "No single change helps</h2>" in card and 'class="button' not in card
    assert link not in sign_in("erin").get(address).content.decode()
    workload.explanation = {"expected_start": make.ago(minutes=-30).isoformat()}
    workload.save()
    assert "Nothing to do: it starts by itself</h2>" in client.get(address).content.decode()
