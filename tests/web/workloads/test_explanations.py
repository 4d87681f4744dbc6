"""Tests for pending reasons on the workload page."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from berth.core.errors import RateLimited
from scheduler.web.workloads import pages
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


@pytest.mark.parametrize(("minutes", "shown"), [(5, True), (-5, False)])
def test_backoff_is_shown_only_until_it_ends(minutes: int, shown: bool, cast: Cast, sign_in: SignIn) -> None:
    until = timezone.now() + timedelta(minutes=minutes)
    workload = make.workload(cast.vision, "train", phase="pending", backoff_until=until)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert ("Backoff" in page) is shown


def test_blocker_numbers_are_formatted(cast: Cast, sign_in: SignIn) -> None:
    until = int(timezone.now().timestamp()) + 3600
    numbers = {"seconds": 1, "until": until, "preemptions": 1}
    explanation = {"blockers": [{"reason": "Backoff", "message": "It was stopped once.", "numbers": numbers}]}
    workload = make.workload(cast.vision, "train", phase="pending", explanation=explanation)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert re.search(r"<dt>remaining</dt><dd>3,?[56]\d\d s</dd>", page)
    assert str(until) not in page.replace(",", "")


def test_pending_workload_page_loads_the_smallest_change(cast: Cast, sign_in: SignIn) -> None:
    make.node(cast.pool)
    make.quota(cast.vision, cast.pool, 0, over_quota=False)
    workload = make.workload(cast.vision, "train", phase="pending")
    client = sign_in("dave")
    page = client.get(f"/workloads/{workload.pk}").content.decode()
    path = f"/workloads/{workload.pk}/smallest-change"
    assert f'hx-get="{path}"' in page
    assert "Searching…" in page
    card = client.get(path).content.decode()
    assert "Smallest change" in card
    assert "The workload would start now if project vision had a quota of 1 GPU instead of 0." in card


def test_other_tenants_cannot_load_the_smallest_change(cast: Cast, sign_in: SignIn) -> None:
    workload = make.workload(cast.vision, "train", phase="pending")
    assert sign_in("grace").get(f"/workloads/{workload.pk}/smallest-change").status_code == 404


def test_running_workload_has_no_smallest_change(cast: Cast, sign_in: SignIn) -> None:
    workload = make.workload(cast.vision, "train", phase="running")
    client = sign_in("dave")
    assert client.get(f"/workloads/{workload.pk}/smallest-change").content == b""
    assert "Searching…" not in client.get(f"/workloads/{workload.pk}").content.decode()


def test_rate_limited_search_shows_when_to_retry(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RateLimited(2, "vision already has the maximum of 3 dry runs in progress. Try again in 2 s.")

    monkeypatch.setattr(pages, "find_smallest_change", refuse)
    workload = make.workload(cast.vision, "train", phase="pending")
    card = sign_in("dave").get(f"/workloads/{workload.pk}/smallest-change").content.decode()
    assert "Try again in 2 s." in card


def test_expected_start_is_stated_once_with_its_assumptions(cast: Cast, sign_in: SignIn) -> None:
    starts = (timezone.now() + timedelta(hours=2)).isoformat()
    explanation = {
        "queue_position": 2, "pool": cast.pool.name, "expected_start": starts,
        "expected_start_reason": "if nothing new is queued ahead",
    }  # fmt: skip
    workload = make.workload(cast.vision, "train", phase="pending", explanation=explanation)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert page.count(", expected start ") == 1
    assert "Expected start:" not in page
    assert "The workload starts as expected if nothing new is queued ahead." in page


def test_unknown_expected_start_is_stated_with_its_reason(cast: Cast, sign_in: SignIn) -> None:
    explanation = {"queue_position": 2, "expected_start_reason": "the boot time is unknown"}
    workload = make.workload(cast.vision, "train", phase="pending", explanation=explanation)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert page.count("Expected start: unknown.") == 1
    assert "The boot time is unknown." in page
