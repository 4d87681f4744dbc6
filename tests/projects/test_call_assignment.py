"""Tests for the assignment of session calls to nodes."""

import hypothesis
import pytest
from hypothesis import strategies as st

from projects.engine.call_assignment import PendingCall, assign_calls


def assigned_nodes(calls: list[PendingCall], room: dict[int, int], turn: int = 0) -> list[int | None]:
    assigned = assign_calls(calls, room, turn).assigned
    return [assigned.get(call.number) for call in calls]


@pytest.mark.shows("SKY-07")
def test_session_calls_are_assigned_to_nodes_round_robin() -> None:
    assert assigned_nodes([PendingCall(n) for n in range(5)], {0: 9, 1: 9, 2: 9}) == [0, 1, 2, 0, 1]


@pytest.mark.shows("SKY-07")
def test_round_robin_continues_after_nodes_change() -> None:
    first = assign_calls([PendingCall(1)], {0: 1, 1: 1, 2: 1}, 0)
    assert assigned_nodes(
        [PendingCall(2), PendingCall(3), PendingCall(4)], {0: 1, 2: 1, 3: 1}, first.turn
    ) == [
        2,
        3,
        0,
    ]


def test_call_assignment_skips_a_full_node() -> None:
    assert assigned_nodes([PendingCall(n) for n in range(4)], {0: 1, 1: 0, 2: 2}) == [0, 2, 2, None]


def test_call_for_one_node_does_not_advance_the_round_robin() -> None:
    calls = [PendingCall(1, node=1), PendingCall(2), PendingCall(3, node=7), PendingCall(4)]
    assert assigned_nodes(calls, {0: 2, 1: 2}) == [1, 0, None, 1]


@hypothesis.given(
    st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=30),
    st.dictionaries(st.integers(0, 5), st.integers(0, 4)),
    st.integers(0, 7),
)
def test_no_node_is_overloaded_and_no_slot_is_idle_while_calls_are_pending(
    nodes: list[int | None], room: dict[int, int], turn: int
) -> None:
    calls = [PendingCall(number, node) for number, node in enumerate(nodes)]
    turns = assign_calls(calls, room, turn)
    took = {node: list(turns.assigned.values()).count(node) for node in room}
    assert all(took[node] <= room[node] for node in room)
    assert all(turns.assigned[call.number] == call.node for call in calls
               if call.node is not None and call.number in turns.assigned)  # fmt: skip
    if any(call.node is None and call.number not in turns.assigned for call in calls):
        assert all(took[node] == room[node] for node in room)
