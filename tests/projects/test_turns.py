"""The order in which a session's calls are handed out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projects.engine.turns import PendingCall, assign_calls


def nodes_of(calls: list[PendingCall], room: dict[int, int], turn: int = 0) -> list[int | None]:
    given = assign_calls(calls, room, turn).assigned
    return [given.get(call.number) for call in calls]


@pytest.mark.shows("SKY-07")
def test_calls_go_round_the_nodes_in_turn() -> None:
    assert nodes_of([PendingCall(n) for n in range(5)], {0: 9, 1: 9, 2: 9}) == [0, 1, 2, 0, 1]


@pytest.mark.shows("SKY-07")
def test_the_turn_goes_on_where_it_stopped_whoever_came_or_went() -> None:
    first = assign_calls([PendingCall(1)], {0: 1, 1: 1, 2: 1}, 0)
    assert nodes_of([PendingCall(2), PendingCall(3), PendingCall(4)], {0: 1, 2: 1, 3: 1}, first.turn) == [
        2,
        3,
        0,
    ]


def test_a_node_without_room_is_passed_over() -> None:
    assert nodes_of([PendingCall(n) for n in range(4)], {0: 1, 1: 0, 2: 2}) == [0, 2, 2, None]


def test_a_call_for_one_node_waits_for_it_and_takes_nobodys_turn() -> None:
    calls = [PendingCall(1, node=1), PendingCall(2), PendingCall(3, node=7), PendingCall(4)]
    assert nodes_of(calls, {0: 2, 1: 2}) == [1, 0, None, 1]


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=30),
    st.dictionaries(st.integers(0, 5), st.integers(0, 4)),
    st.integers(0, 7),
)
def test_nobody_gets_more_than_there_is_room_for_and_no_room_is_left_while_anything_waits(
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
