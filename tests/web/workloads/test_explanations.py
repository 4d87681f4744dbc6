"""Tests for pending reasons on the workload page."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tests import factories as make
from tests.cast import Cast


@pytest.mark.parametrize(("minutes", "shown"), [(5, True), (-5, False)])
def test_backoff_is_shown_only_until_it_ends(minutes: int, shown: bool, cast: Cast, sign_in) -> None:
    until = timezone.now() + timedelta(minutes=minutes)
    workload = make.workload(cast.vision, "train", phase="pending", backoff_until=until)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert ("Backoff" in page) is shown


def test_numbers_of_a_blocker_are_formatted(cast: Cast, sign_in) -> None:
    numbers = {"seconds": 90, "until": 1_795_292_278, "preemptions": 1}
    explanation = {"blockers": [{"reason": "Backoff", "message": "It was stopped once.", "numbers": numbers}]}
    workload = make.workload(cast.vision, "train", phase="pending", explanation=explanation)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert "<dt>remaining</dt><dd>1 min 30 s</dd>" in page
    assert "1795292278" not in page.replace(",", "")
