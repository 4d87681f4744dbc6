"""Test that the search for victims scales linearly with the number of queues."""

import pytest

from scheduler.engine.board.ledger import QueueAccount
from scheduler.engine.preemption.victims.selection import VictimSelection
from tests.engine.world import World


def queues_at_their_limits(count: int) -> World:
    """Return a half-full cluster whose queues are at their limits, each with a pending workload."""
    world = World().department("d", count)
    for i in range(count // 4):
        world.node(f"n{i}")
    for i in range(count):
        world.project(f"p{i}", "d", 1, limit=1)
        world.running(f"r{i}", f"p{i}", f"n{i // 4}").queued(f"w{i}", f"p{i}")
    return world


def queues_examined(monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    """Return how many queues a decision examines for victims."""
    examined = 0
    original = VictimSelection._is_queue_allowed

    def counting(selection: VictimSelection, account: QueueAccount) -> bool:
        nonlocal examined
        examined += 1
        return original(selection, account)

    with monkeypatch.context() as patch:
        patch.setattr(VictimSelection, "_is_queue_allowed", counting)
        assert not queues_at_their_limits(count).decide().bundles
    return examined


def test_reclaim_for_a_queue_at_its_limit_examines_no_other_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (queues_examined(monkeypatch, count) for count in (16, 64))
    assert few > 0
    assert many <= 4 * few
