"""Tests that a reconciler killed between any two steps neither leaks nor duplicates instances."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from django.db import transaction
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from pools.providers.base import ProviderErrorKind
from tests.fakes.provider import ExtraInstances, Fail, FakeProvider
from tests.pools.stage import Killed, Stage, pool

shows = pytest.mark.shows
MAX_KILL_POINTS = 200


class KillAt:
    def __init__(self, n: int) -> None:
        self.left = n
        self.where = ""

    def __call__(self, where: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.where = where
            raise Killed(where)


def grow(stage: Stage) -> None:
    stage.resize(4)
    stage.settle()


def shrink(stage: Stage) -> None:
    stage.resize(1)
    stage.settle()


def grow_with_faults(stage: Stage) -> None:
    lost_response = Fail(ProviderErrorKind.TIMEOUT, after=True)
    stage.provider.next("provision", ExtraInstances(more=-2), lost_response, Fail(ProviderErrorKind.CAPACITY))
    grow(stage)


def replace_lost_nodes(stage: Stage) -> None:
    for ordinal in (0, 2):
        stage.provider.vanish(stage.node(ordinal).instance_id)
    stage.settle()


def resize_repeatedly(stage: Stage) -> None:
    stage.resize(6)
    stage.reconcile()
    stage.resize(2)
    stage.reconcile()
    stage.resize(5)
    stage.settle()


heavy = (pytest.mark.heavy, pytest.mark.timeout(900))  # timeout in seconds, enough on a busy machine
SCENARIOS = [
    pytest.param(0, grow, True, 4),
    pytest.param(0, grow, False, 4, marks=heavy),
    pytest.param(4, shrink, True, 4, marks=heavy),
    pytest.param(0, grow_with_faults, True, 4, marks=heavy),
    pytest.param(3, replace_lost_nodes, True, 5, marks=heavy),
    pytest.param(3, resize_repeatedly, True, 6, marks=heavy),
    pytest.param(3, resize_repeatedly, False, 6, marks=heavy),
]


@pytest.mark.django_db
@shows("SKY-75", "SKY-76", "SKY-77", "SKY-87")
@pytest.mark.parametrize(("before", "scene", "at_once", "most"), SCENARIOS)
def test_reconciler_killed_at_any_step_recovers(
    before: int, scene: Callable[[Stage], None], at_once: bool, most: int
) -> None:
    places = set()
    for n in range(1, MAX_KILL_POINTS):
        with transaction.atomic():
            stage = Stage(pool(), FakeProvider(boots_immediately=at_once))
            stage.resize(before)
            stage.settle()
            stage.kill = killer = KillAt(n)
            with suppress(Killed):
                scene(stage)
            stage.kill = lambda where: None
            stage.settle()
            stage.check()
            assert stage.provider.created_count <= most, (
                f"missing nodes were ordered twice: killed {killer.where}"
            )
            transaction.set_rollback(True)
        if killer.left > 0:
            break
        places.add(killer.where)
    assert {"before a commit", "after a commit"} <= places
    assert n < MAX_KILL_POINTS - 1


KINDS = [ProviderErrorKind.TIMEOUT, ProviderErrorKind.CAPACITY, ProviderErrorKind.BROKEN]
OUTCOMES = st.one_of(
    st.builds(ExtraInstances, st.integers(-3, 2)),
    st.builds(Fail, st.sampled_from(KINDS), st.just("scripted error"), st.booleans()),
)
EVENTS = st.one_of(
    st.tuples(st.just("resize"), st.integers(0, 6)),
    st.tuples(st.just("kill"), st.integers(1, 12)),
    st.tuples(st.just("outcome"), st.tuples(st.sampled_from(["provision", "terminate"]), OUTCOMES)),
    st.tuples(st.just("vanish"), st.integers(0, 9)),
    st.tuples(st.just("pass"), st.sampled_from([1, 4, 15, 40])),
    st.tuples(st.just("boot"), st.just(0)),
    st.tuples(st.just("empty"), st.just(0)),
)


class RandomFaultTests(TestCase):
    """Check that random events leave a pool with its desired nodes and no leaked instances."""

    @settings(max_examples=4, deadline=None)
    @given(at_once=st.booleans(), events=st.lists(EVENTS, max_size=20))
    def test_random_events_do_not_leak_instances(
        self, at_once: bool, events: list[tuple[str, object]]
    ) -> None:
        stage = Stage(pool(), FakeProvider(boots_immediately=at_once))
        for event, value in events:
            with suppress(Killed):
                self.apply_event(stage, event, value)
                stage.reconcile()
            stage.kill = lambda where: None
            assert len(stage.states()) <= 8
        stage.provider.outcomes.clear()
        stage.settle(passes=30)
        stage.check()

    def apply_event(self, stage: Stage, event: str, value: object) -> None:
        living = [instance.instance_id for instance in stage.provider.living()]
        match event, value:
            case "resize", int(nodes_desired):
                stage.resize(nodes_desired)
            case "kill", int(n):
                stage.kill = KillAt(n)
            case "outcome", (str(call), ExtraInstances() | Fail() as outcome):
                if call == "provision" or isinstance(outcome, Fail):
                    stage.provider.next(call, outcome)
            case "vanish", int(n) if living:
                stage.provider.vanish(living[n % len(living)])
            case "pass", int(seconds):
                stage.pass_time(seconds)
            case "boot", _:
                stage.provider.boot()
            case "empty", _:
                stage.empty_drains()
