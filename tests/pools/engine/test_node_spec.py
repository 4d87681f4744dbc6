"""Tests for node specs: their four notations, and contradictions."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.errors import Invalid
from pools.engine.node_spec import NodeSpec, parse_node_spec

shows = pytest.mark.shows


@shows("SKY-01")
def test_node_spec_is_immutable() -> None:
    assert {field.name for field in dataclasses.fields(NodeSpec)} == {"min", "max", "desired"}
    for name in ("min", "max", "desired"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(NodeSpec(4), name, 5)


@shows("SKY-02", "SKY-10", "SKY-19")
@pytest.mark.parametrize(
    ("notation", "spec"),
    [
        (4, NodeSpec(min=4)),
        ({"min": 8, "desired": 4}, NodeSpec(min=8, desired=4)),
        ((2, 16), NodeSpec(min=2, max=16)),
        ([2, 16], NodeSpec(min=2, max=16)),
        ({"min": 4, "desired": 2, "max": 16}, NodeSpec(min=4, desired=2, max=16)),
        (NodeSpec(3), NodeSpec(3)),
    ],
)
def test_equivalent_notations_yield_equal_specs(notation: object, spec: NodeSpec) -> None:
    assert parse_node_spec(notation) == spec


@shows("SKY-19")
@pytest.mark.parametrize(
    ("notation", "elastic", "first", "threshold", "maximum"),
    [
        (4, False, 4, 4, 4),
        ({"min": 8, "desired": 4}, False, 8, 4, 8),
        ((2, 16), True, 2, 2, 16),
        ({"min": 4, "desired": 2, "max": 16}, True, 4, 2, 16),
    ],
)
def test_each_node_count_notation_behaves_as_documented(
    notation: object, elastic: bool, first: int, threshold: int, maximum: int
) -> None:
    spec = parse_node_spec(notation)
    assert (spec.is_elastic, spec.initial_nodes, spec.ready_threshold, spec.max_nodes) == (
        elastic, first, threshold, maximum,
    )  # fmt: skip


@shows("SKY-04")
@pytest.mark.parametrize("notation", [{"min": 3}, {"min": 3, "max": 9}])
def test_desired_nodes_default_to_the_minimum(notation: dict[str, int]) -> None:
    spec, spelled_out = parse_node_spec(notation), parse_node_spec({**notation, "desired": 3})
    assert spec.ready_threshold == spelled_out.ready_threshold == 3
    assert spec.initial_nodes == spelled_out.initial_nodes


@shows("SKY-11")
def test_pool_is_elastic_if_and_only_if_it_has_a_maximum() -> None:
    assert NodeSpec(4, max=4).is_elastic
    assert not NodeSpec(4, desired=2).is_elastic


@shows("SKY-12", "SKY-16")
def test_elastic_pool_starts_with_its_minimum_or_ready_threshold() -> None:
    assert NodeSpec(2, max=16).initial_nodes == 2
    assert NodeSpec(2, max=16, desired=6).initial_nodes == 6
    assert NodeSpec(0, max=4, desired=2).initial_nodes == 0, "no nodes are needed before there is work"


@shows("SKY-09", "SKY-16", "SKY-18")
@pytest.mark.parametrize(
    ("notation", "path"),
    [
        (0, "nodes.min"),
        (-1, "nodes.min"),
        ((-1, 3), "nodes.min"),
        ((4, 3), "nodes.max"),
        ((0, 0), "nodes.max"),
        ({"min": 4, "desired": 5}, "nodes.desired"),
        ({"min": 4, "desired": 0}, "nodes.desired"),
        ({"min": 4, "max": 8, "desired": 9}, "nodes.desired"),
        ({"min": 0, "max": 8, "desired": -1}, "nodes.desired"),
        ({"max": 3}, "nodes.min"),
        ({"min": 1, "maxi": 3}, "nodes.maxi"),
        ({"min": "4"}, "nodes.min"),
        ({"min": 4, "max": 4.5}, "nodes.max"),
        ({"min": True}, "nodes.min"),
        ({"min": None}, "nodes.min"),
        (True, "nodes"),
        ("4", "nodes"),
        ((1, 2, 3), "nodes"),
        (None, "nodes"),
    ],
)
def test_error_names_the_contradictory_field(notation: object, path: str) -> None:
    with pytest.raises(Invalid) as raised:
        parse_node_spec(notation)
    assert [problem.path for problem in raised.value.problems] == [path]


@shows("SKY-18")
def test_elastic_pool_may_shrink_to_zero() -> None:
    assert NodeSpec(0, max=4).min == 0
    assert NodeSpec(0, max=4, desired=0).ready_threshold == 0


NUMBERS = st.one_of(st.none(), st.integers(-2, 12))


@given(minimum=NUMBERS, maximum=NUMBERS, desired=NUMBERS)
def test_accepted_node_specs_are_consistent(minimum: int, maximum: int | None, desired: int | None) -> None:
    try:
        spec = NodeSpec(minimum, maximum, desired)
    except Invalid as raised:
        assert raised.problems
        return
    assert 0 <= spec.min <= spec.max_nodes
    assert spec.min >= 1 or spec.is_elastic
    assert 0 <= spec.ready_threshold <= spec.max_nodes
    assert spec.min <= spec.initial_nodes <= spec.max_nodes
    assert all(spec.min <= spec.clamp(count) <= spec.max_nodes for count in range(-3, 20))
