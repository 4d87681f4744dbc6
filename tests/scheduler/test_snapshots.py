"""Tests that stored cycle inputs are kept for a limited time and within a size limit."""

from datetime import UTC, datetime, timedelta

import pytest

from scheduler.loop.snapshots import CYCLE_RETENTION, SNAPSHOT_RETENTION, drop_expired_cycles
from scheduler.models import Cycle

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def cycle(age: timedelta, size: int = 100) -> int:
    return Cycle.objects.create(at=NOON - age, epoch=1, trigger="tick", snapshot=b"x" * size).pk


def with_scenario() -> set[int]:
    return set(Cycle.objects.filter(snapshot__isnull=False).values_list("pk", flat=True))


@pytest.mark.django_db
def test_old_snapshots_are_deleted_earlier_than_their_cycles() -> None:
    cycle(CYCLE_RETENTION + timedelta(hours=1))
    bare = cycle(SNAPSHOT_RETENTION + timedelta(hours=1))
    young = cycle(timedelta(hours=1))
    drop_expired_cycles(NOON)
    assert set(Cycle.objects.values_list("pk", flat=True)) == {bare, young}
    assert with_scenario() == {young}


@pytest.mark.django_db
def test_oldest_snapshots_beyond_the_size_limit_are_deleted() -> None:
    made = [cycle(timedelta(minutes=30 - i)) for i in range(5)]
    assert drop_expired_cycles(NOON, max_bytes=250) == 3
    assert with_scenario() == set(made[-2:])
    assert Cycle.objects.count() == 5
