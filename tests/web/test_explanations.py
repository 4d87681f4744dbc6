"""Pages show current reasons only."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tests import factories as make
from tests.cast import Cast


@pytest.mark.parametrize(("minutes", "shown"), [(5, True), (-5, False)])
def test_who_holds_back_no_more_is_not_said_to(minutes: int, shown: bool, cast: Cast, sign_in) -> None:
    until = timezone.now() + timedelta(minutes=minutes)
    workload = make.workload(cast.vision, "train", phase="pending", backoff_until=until)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert ("Backoff" in page) is shown


def test_numbers_are_told_as_people_read_them(cast: Cast, sign_in) -> None:
    numbers = {"seconds": 90, "until": 1_795_292_278, "preemptions": 1}
    told = {"blockers": [{"reason": "Backoff", "message": "It was stopped once.", "numbers": numbers}]}
    workload = make.workload(cast.vision, "train", phase="pending", explanation=told)
    page = sign_in("dave").get(f"/workloads/{workload.pk}").content.decode()
    assert "<dt>remaining</dt><dd>1 min 30 s</dd>" in page
    assert "1795292278" not in page.replace(",", "")
