"""Tests for the mark on reasons that are older than the last edit."""

from datetime import timedelta

import pytest
from django.utils import timezone

from berth.db.loops.lease import acquire
from projects.models import Workload
from projects.services.workloads.submission import submit
from scheduler.models import Cycle
from scheduler.reports.explanations import edits
from tests import factories as make
from tests.cast import Cast, training
from tests.web.conftest import SignIn


@pytest.mark.heavy
def test_reasons_and_numbers_from_before_an_edit_are_marked_until_the_next_cycle(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {"resource": "gpu", "queue": "vision", "allocated": 4000, "requested": 4000, "share": 6000}
    reason, message = "WouldExceedFairShare", "vision would have 8 of 6 GPUs."
    blockers = [{"reason": reason, "message": message, "numbers": numbers}]
    workload = submit(actor=cast.dave, project=cast.vision, document=training("train", priority=50))
    Workload.objects.filter(pk=workload.pk).update(
        reason=reason, message=message, explained_at=make.ago(minutes=5),
        explanation={"queue_position": 4, "pool": cast.pool.name, "blockers": blockers,
                     "expected_start": make.ago(minutes=-30).isoformat()},
    )  # fmt: skip
    client = sign_in("dave")

    def page(tab: str = "") -> str:
        return client.get(f"/workloads/{workload.pk}{tab}").content.decode()

    assert 'id="outdated"' not in page() and "8 needed" in page() and "Expected start: <strong>" in page()
    document = training("train", priority=40)
    answer = client.patch(
        f"/api/v1/workloads/{workload.pk}", {"priority": document["priority"]}, "application/json"
    )
    assert answer.status_code == 200, answer.content
    assert 'id="outdated">evaluated before the edit <time' in page() and "8 needed" not in page()
    for tab in ("", "/spec"):
        head = page(tab).partition('class="head-facts"')[0]
        assert "Edited <time" in head and "The next scheduling cycle evaluates the edit." in head, tab
        assert "Queue position" not in head and "Expected start" not in head and "8 of 6" not in head, tab
    start = page().partition('id="outdated"')[2]
    assert "Starts by itself about <time" in start, "the card is marked as from before the edit"
    acquire("scheduler", "test", 60.0)
    assert 'id="outdated"' in page()
    with monkeypatch.context() as patched:
        patched.setattr(edits, "CONSIDERED_WITHIN", timedelta(0))
        assert 'id="outdated"' not in page(), "a cycle without changes is not recorded"
    Cycle.objects.create(at=timezone.now() + timedelta(seconds=1), epoch=1, trigger="poll")
    assert 'id="outdated"' not in page() and "8 needed" in page()
