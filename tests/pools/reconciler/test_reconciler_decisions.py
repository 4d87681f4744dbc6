"""Tests for the pure reconciler, one event and one step at a time."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pools.engine.reconciler import Command, Drain, Fleet, Launch, Phase, UndoDrain, next_step
from pools.engine.victims import LostWork
from tests.pools.fleets import (
    after_drain,
    after_failed_order,
    after_join,
    after_provisioning,
    after_tick,
    without_node,
)

shows = pytest.mark.shows
ENGINE = Path(__file__).resolve().parents[3] / "pools" / "engine"


def fleet(
    desired: int,
    current: Iterable[int] = (),
    pending: Iterable[int] = (),
    draining: Iterable[int] = (),
    retiring: Iterable[int] = (),
    in_flight: int = 0,
) -> Fleet:
    return Fleet(
        desired, frozenset(current), frozenset(pending), frozenset(draining), frozenset(retiring), in_flight
    )


def commands(state: Fleet) -> tuple[Command, ...]:
    return next_step(state).commands


@shows("SKY-47", "SKY-48", "SKY-49")
def test_each_node_counts_as_current_pending_or_draining() -> None:
    state = fleet(4, [0, 1], [2], [3])
    assert state.effective_size == 3
    assert state.phase == Phase.DRAINING
    assert fleet(2, [0, 1]).phase == Phase.WATCHING
    assert fleet(3, [0], in_flight=2).phase == Phase.SCALING_UP


@shows("SKY-50", "SKY-55", "SKY-84")
def test_missing_nodes_are_requested_in_one_call() -> None:
    step = next_step(fleet(6, range(4)))
    assert step.commands == (Launch(count=2, start_ordinal=4),)
    assert step.fleet.phase == Phase.SCALING_UP


@shows("SKY-52")
def test_pending_nodes_are_not_requested_again() -> None:
    for desired in (2, 3, 4):
        assert commands(fleet(desired, [0, 1], [2, 3])) == ()


@shows("SKY-56", "SKY-57", "SKY-60", "SKY-77")
def test_launched_nodes_are_pending_immediately() -> None:
    ordered = next_step(fleet(6, range(4))).fleet
    assert commands(ordered) == (), "one call in flight"
    delivered = after_provisioning(ordered, [4, 5])
    assert delivered.pending == {4, 5}
    assert delivered.phase == Phase.WATCHING
    assert commands(delivered) == ()


@shows("SKY-54", "SKY-85")
def test_joined_node_counts_as_current() -> None:
    joined = after_join(fleet(2, [0], [1]), 1)
    assert joined.current == {0, 1}
    assert not joined.pending
    assert after_join(joined, 7) == joined


@shows("SKY-58")
def test_nodes_for_demand_added_during_a_provider_call_are_requested_later() -> None:
    in_flight = next_step(fleet(3, [0])).fleet.with_desired_nodes(6)
    assert commands(in_flight) == ()
    assert commands(after_provisioning(in_flight, [1, 2])) == (Launch(3, 3),)


@shows("SKY-58")
def test_lower_demand_during_provisioning_does_not_lose_launched_nodes() -> None:
    delivered = after_provisioning(next_step(fleet(5, [0, 1])).fleet.with_desired_nodes(2), [2, 3, 4])
    assert delivered.pending == {2, 3, 4}
    assert commands(delivered) == ()
    for ordinal in (2, 3, 4):
        delivered = after_join(delivered, ordinal)
    assert commands(delivered) == (Drain((4, 3, 2)),)


@shows("SKY-59")
def test_missing_nodes_are_requested_after_a_partial_launch() -> None:
    delivered = after_provisioning(next_step(fleet(4)).fleet, [0])
    assert commands(delivered) == (Launch(3, 1),)


@shows("SKY-61", "SKY-62", "SKY-74", "SKY-75", "SKY-76")
def test_failed_provider_call_is_retried_only_at_the_next_tick() -> None:
    failed = after_failed_order(next_step(fleet(4, [0, 1])).fleet)
    assert failed.phase == Phase.WATCHING
    assert commands(failed) == ()
    assert commands(without_node(failed, 1)) == ()
    assert commands(after_tick(failed)) == (Launch(2, 2),)


@shows("SKY-53", "SKY-81")
def test_lost_node_is_replaced() -> None:
    assert commands(without_node(fleet(4, range(4)), 2)) == (Launch(1, 4),)


def test_lost_head_node_is_replaced_with_ordinal_0() -> None:
    without_head = without_node(fleet(4, range(4)), 0)
    assert commands(without_head) == (Launch(1, 0),)
    two_lost = without_node(without_head, 3)
    step = next_step(two_lost)
    assert step.commands == (Launch(1, 0),), "ordinals 0 and 3 are not consecutive"
    assert commands(after_provisioning(step.fleet, [0])) == (Launch(1, 3),)


@shows("SKY-51", "SKY-63", "SKY-65", "SKY-86")
def test_surplus_nodes_are_drained_highest_ordinal_first() -> None:
    step = next_step(fleet(2, range(6)))
    assert step.commands == (Drain((5, 4, 3, 2)),)
    assert step.fleet.phase == Phase.DRAINING
    assert commands(step.fleet) == ()


@shows("SKY-67")
def test_nodes_with_the_least_work_to_lose_are_drained_first() -> None:
    def work_by_ordinal(**seconds: int) -> dict[int, LostWork]:
        return {int(name[1:]): LostWork(gpu_seconds=value, pods=1) for name, value in seconds.items()}

    assert next_step(fleet(2, range(5)), work_by_ordinal(n4=500, n3=20, n2=20, n1=0)).commands == (
        Drain((1, 3, 2)),
    )
    assert next_step(fleet(3, range(4)), work_by_ordinal(n3=9, n2=9, n1=9)).commands == (Drain((3,)),)


def test_drain_order_considers_non_preemptible_pods_then_gpu_seconds_then_cpu_seconds() -> None:
    work = {
        3: LostWork(non_preemptible=1, pods=1),
        2: LostWork(gpu_seconds=9000, pods=1),
        1: LostWork(cpu_seconds=5, pods=1),
    }
    assert next_step(fleet(1, range(4)), work).commands == (Drain((1, 2, 3)),)
    assert next_step(fleet(1, range(5)), work).commands == (Drain((4, 1, 2, 3)),)


@shows("SKY-64")
def test_head_node_is_not_drained_while_nodes_are_desired() -> None:
    assert next_step(fleet(1, [0, 1]), {1: LostWork(gpu_seconds=10**6, pods=1)}).commands == (Drain((1,)),)
    assert commands(fleet(1, [0])) == ()


@shows("SKY-39")
def test_head_node_is_drained_last_when_no_nodes_are_desired() -> None:
    assert commands(fleet(0, range(3))) == (Drain((2, 1, 0)),)
    assert commands(fleet(0, [0], [1])) == ()


@shows("SKY-70")
def test_pool_phase_returns_to_watching_after_a_drain() -> None:
    draining = next_step(fleet(1, range(3))).fleet
    done = after_drain(after_drain(draining, 2), 1)
    assert done.phase == Phase.WATCHING
    assert commands(done) == ()


@shows("SKY-71", "SKY-72", "SKY-73")
def test_higher_demand_during_a_drain_reverts_it() -> None:
    draining = next_step(fleet(2, range(6))).fleet
    all_back = next_step(draining.with_desired_nodes(6))
    assert all_back.commands == (UndoDrain((2, 3, 4, 5)),)
    assert all_back.fleet.phase == Phase.WATCHING
    assert all_back.fleet.current == set(range(6))
    and_more = next_step(draining.with_desired_nodes(8))
    assert and_more.commands == (UndoDrain((2, 3, 4, 5)), Launch(2, 6))
    assert and_more.fleet.phase == Phase.SCALING_UP


def test_only_as_many_drains_as_needed_are_reverted() -> None:
    draining = next_step(fleet(2, range(6))).fleet
    step = next_step(draining.with_desired_nodes(3))
    assert step.commands == (UndoDrain((2,)),)
    assert step.fleet.draining == {3, 4, 5}


@shows("SKY-73")
def test_late_completion_of_a_drain_does_not_remove_the_node() -> None:
    reverted = next_step(next_step(fleet(1, [0, 1])).fleet.with_desired_nodes(2)).fleet
    assert after_drain(reverted, 1) == reverted


@shows("SKY-78")
@pytest.mark.parametrize("group", range(4))
def test_lost_node_is_neither_current_nor_pending_nor_draining(group: int) -> None:
    current, pending, draining, retiring = ([7] if index == group else [] for index in range(4))
    assert without_node(fleet(3, current, pending, draining, retiring), 7).ordinals_in_use == frozenset()


def test_manual_drain_is_not_reverted_and_the_node_is_replaced() -> None:
    retiring = fleet(3, [0, 1], retiring=[2])
    assert commands(retiring) == (Launch(1, 3),)


@shows("SKY-79", "SKY-82", "SKY-83")
def test_missing_nodes_are_requested_up_to_the_desired_number() -> None:
    # The fleet state does not contain the pool's ready threshold.
    assert commands(fleet(8)) == (Launch(8, 0),)
    assert commands(fleet(8, range(4), range(4, 7))) == (Launch(1, 7),)


@shows("SKY-87")
def test_reconciler_imports_neither_providers_nor_the_scheduler() -> None:
    for file in ENGINE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                pure = {
                    "collections",
                    "cronsim",
                    "dataclasses",
                    "datetime",
                    "enum",
                    "fnmatch",
                    "pydantic",
                    "typing",
                }
                is_allowed = node.module.startswith(("berth.core.", "pools.engine."))
                assert is_allowed or node.module.split(".")[0] in pure


# --- invariants


@dataclass
class SimulatedProvider:
    """A fleet whose provider responds late, partially or not at all. `orders` lists all launch requests."""

    fleet: Fleet
    orders: list[Launch] = field(default_factory=list)
    head_drained_while_desired: bool = False

    def step(self) -> bool:
        before = self.fleet
        step = next_step(self.fleet)
        self.fleet = step.fleet
        for command in step.commands:
            match command:
                case Launch():
                    assert not before.in_flight, "two orders for the same missing nodes"
                    self.orders.append(command)
                    missing_head = command == Launch(1, 0)  # ordered even though there are enough nodes
                    assert missing_head or before.effective_size + command.count <= before.desired
                    ordered_ordinals = range(command.start_ordinal, command.start_ordinal + command.count)
                    assert not before.ordinals_in_use & set(ordered_ordinals)
                case Drain(ordinals):
                    assert 0 not in ordinals or before.desired == 0
                    assert len(before.current) - len(ordinals) >= before.desired
                case UndoDrain(ordinals):
                    assert set(ordinals) <= before.draining
        return bool(step.commands)

    def apply_event(self, event: str, n: int) -> None:
        fleet = self.fleet

        def pick(among: frozenset[int]) -> int | None:
            return sorted(among)[n % len(among)] if among else None

        match event:
            case "resize":
                self.fleet = fleet.with_desired_nodes(n % 9)
            case "answer" if fleet.in_flight:
                order = self.orders[-1]
                delivered = range(order.start_ordinal, order.start_ordinal + n % (order.count + 1))
                self.fleet = after_provisioning(fleet, delivered)
            case "fail" if fleet.in_flight:
                self.fleet = after_failed_order(fleet)
            case "tick":
                self.fleet = after_tick(fleet)
            case "join" if (ordinal := pick(fleet.pending)) is not None:
                self.fleet = after_join(fleet, ordinal)
            case "lose" if (ordinal := pick(fleet.ordinals_in_use)) is not None:
                self.fleet = without_node(fleet, ordinal)
            case "drained" if (ordinal := pick(fleet.draining)) is not None:
                self.fleet = after_drain(fleet, ordinal)

    def settle(self) -> None:
        """Make the provider fulfil every call from now on, without further events."""
        for _ in range(40):
            progress = self.step()
            fleet = after_tick(self.fleet)
            if fleet.in_flight:
                order = self.orders[-1] if self.orders else Launch(fleet.in_flight, 0)
                fleet = after_provisioning(
                    fleet, range(order.start_ordinal, order.start_ordinal + order.count)
                )
            for ordinal in fleet.pending:
                fleet = after_join(fleet, ordinal)
            for ordinal in fleet.draining:
                fleet = after_drain(fleet, ordinal)
            if fleet == self.fleet and not progress:
                return
            self.fleet = fleet
        raise AssertionError(f"the fleet does not come to rest: {self.fleet}")


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["resize", "answer", "fail", "tick", "join", "lose", "drained"]), st.integers(0, 50)
    ),
    max_size=40,
)


@shows("SKY-13", "SKY-14", "SKY-64", "SKY-75", "SKY-76", "SKY-77")
@given(events=EVENTS)
def test_pool_reaches_its_desired_number_of_nodes_after_random_events(events: list[tuple[str, int]]) -> None:
    world = SimulatedProvider(Fleet(desired=3))
    for event, n in events:
        world.apply_event(event, n)
        world.step()
        fleet = world.fleet
        groups = [fleet.current, fleet.pending, fleet.draining, fleet.retiring]
        assert sum(map(len, groups)) == len(fleet.ordinals_in_use), "each node is counted once"
        assert not world.step(), "a second step changes nothing"
    world.settle()
    assert len(world.fleet.current) == world.fleet.desired
    assert world.fleet.ordinals_in_use == world.fleet.current


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (fleet(2, [1, 2, 3]), (Launch(1, 0),)),
        (fleet(3, [1, 2, 3]), (Launch(1, 0),)),
        (fleet(3, [1, 2, 3], in_flight=1), ()),
        (fleet(3, [1, 2, 3], retiring=[0]), ()),
        (fleet(3, [0, 1, 2, 3]), (Drain((3,)),)),
        (fleet(0, [1]), (Drain((1,)),)),
    ],
)
def test_missing_head_node_is_requested_even_if_enough_nodes_exist(
    state: Fleet, expected: tuple[object, ...]
) -> None:
    # The order waits for the current call and for the drain of the old head. Nodes must be desired.
    assert commands(state) == expected
