"""Tests for leases: one leader at a time, and no writes by a former leader."""

import subprocess
import sys
import threading
from collections import Counter

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from berth.db.loops.lease import HeldLease, LeadershipLost, acquire, fenced_transaction, release, renew
from berth.db.models import Lease

pytestmark = pytest.mark.django_db


def test_second_process_cannot_acquire_a_held_lease() -> None:
    assert acquire("scheduler", "a", ttl=60) == HeldLease("scheduler", "a", 1)
    assert acquire("scheduler", "b", ttl=60) is None
    assert acquire("other", "b", ttl=60) == HeldLease("other", "b", 1)


def test_expired_lease_is_acquired_with_a_higher_epoch() -> None:
    first = acquire("scheduler", "a", ttl=0)
    second = acquire("scheduler", "b", ttl=60)
    assert first == HeldLease("scheduler", "a", 1)
    assert second == HeldLease("scheduler", "b", 2)
    assert not renew(first, ttl=60)
    assert not release(first)
    assert renew(second, ttl=60)


def test_restarted_leader_gets_a_new_epoch() -> None:
    before = acquire("scheduler", "a", ttl=60)
    after = acquire("scheduler", "a", ttl=60)
    assert before
    assert after == HeldLease("scheduler", "a", 2)
    with pytest.raises(LeadershipLost), fenced_transaction(before):
        pass


def test_released_lease_can_be_acquired_immediately() -> None:
    held = acquire("scheduler", "a", ttl=60)
    assert held
    assert release(held)
    assert not renew(held, ttl=60)
    assert acquire("scheduler", "b", ttl=60) == HeldLease("scheduler", "b", 2)


def test_expired_lease_is_renewed_if_no_other_process_holds_it() -> None:
    held = acquire("scheduler", "a", ttl=0)
    assert held
    assert renew(held, ttl=60)
    assert acquire("scheduler", "b", ttl=60) is None


def test_stale_leader_cannot_write() -> None:
    stale = acquire("scheduler", "a", ttl=0)
    assert stale
    acquire("scheduler", "b", ttl=60)
    with pytest.raises(LeadershipLost), fenced_transaction(stale):
        Group.objects.create(name="written by a stale leader")
    assert not Group.objects.exists()


def test_process_without_a_lease_cannot_write() -> None:
    with pytest.raises(LeadershipLost), fenced_transaction(HeldLease("scheduler", "a", 1)):
        Group.objects.create(name="never")


@pytest.mark.django_db(transaction=True)
def test_asynchronous_commit_applies_only_to_its_own_transaction() -> None:
    held = acquire("scheduler", "a", ttl=60)
    assert held
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit TO on")
    with fenced_transaction(held, waits_for_disk=False):
        assert _synchronous_commit() == "off"
    with fenced_transaction(held):
        assert _synchronous_commit() == "on"
    assert renew(held, ttl=60)
    assert _synchronous_commit() == "on"
    connection.close()


def test_stale_leader_cannot_write_with_asynchronous_commit() -> None:
    stale = acquire("scheduler", "a", ttl=0)
    assert stale
    acquire("scheduler", "b", ttl=60)
    with pytest.raises(LeadershipLost), fenced_transaction(stale, waits_for_disk=False):
        Group.objects.create(name="written by a stale leader")
    assert not renew(stale, ttl=60)


def _synchronous_commit() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        return str(cursor.fetchone()[0])


@pytest.mark.django_db(transaction=True)
def test_successor_waits_for_the_leaders_transaction() -> None:
    held = acquire("scheduler", "a", ttl=0)
    assert held
    order: list[str] = []

    def take_over() -> None:
        acquire("scheduler", "b", ttl=60)
        order.append("taken over")
        connection.close()

    with fenced_transaction(held):
        successor = threading.Thread(target=take_over)
        successor.start()
        _wait_for_a_blocked_query()
        Group.objects.create(name="still the leader")
        order.append("written")
    successor.join()
    assert order == ["written", "taken over"]
    assert Group.objects.get().name == "still the leader"


RACER = """
import sys, django
django.setup()
from berth.db.loops.lease import acquire
sys.stdin.readline()
print(*(n for n in range(200) if acquire(f"lease-{n}", sys.argv[1], ttl=60)))
"""


def test_exactly_one_of_two_processes_acquires_each_lease(
    database_url: str, child_env: dict[str, str]
) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=child_env,
        )
        for name in ("a", "b")
    ]
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = Counter(lease for racer in racers for lease in racer.communicate()[0].split())
    assert won == Counter({str(number): 1 for number in range(200)})
    assert set(Lease.objects.values_list("epoch", flat=True)) == {1}


def _wait_for_a_blocked_query() -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with connection.cursor() as cursor:
        while cursor.execute(waiting).fetchone() == (0,):
            pass
