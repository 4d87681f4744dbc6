"""Estimated start times and their limits."""

import pytest

from scheduler.engine.decide import decide
from scheduler.engine.forecast import ASSUMPTIONS, DUE, Forecast, forecasts
from scheduler.engine.model import Snapshot
from tests.engine.world import NOON, World


def expected(world: World) -> dict[str, Forecast]:
    snapshot = world.snapshot if isinstance(world.snapshot, Snapshot) else world.snapshot()
    return dict(forecasts(snapshot, decide(snapshot)))


def full(**more: int) -> World:
    """Eight GPUs, half of them given back in 600 s, half in 1200 s; the project may have them all."""
    world = World(n0=8).department("d", None).project("p", "d", None)
    world.running("p/first", "p", "n0 n0 n0 n0", since=100, max_runtime=700)
    return world.running("p/second", "p", "n0 n0 n0 n0", since=100, max_runtime=1300, **more)


def test_who_is_next_starts_when_enough_has_ended() -> None:
    assert expected(full().queued("p/a", "p", 4)) == {"p/a": Forecast(NOON + 600, ASSUMPTIONS)}
    assert expected(full().queued("p/a", "p", 6)) == {"p/a": Forecast(NOON + 1200, ASSUMPTIONS)}


def test_who_is_behind_starts_after_who_is_before() -> None:
    world = full().queued("p/a", "p", 4, max_runtime=50).queued("p/b", "p", 3)
    assert {name: found.at for name, found in expected(world).items()} == {
        "p/a": NOON + 600, "p/b": NOON + 650,
    }  # fmt: skip


def test_what_declared_no_end_is_not_counted_upon() -> None:
    world = World(n0=8).department("d", None).project("p", "d", None)
    world.running("p/long", "p", "n0 n0 n0 n0 n0 n0", since=100)
    world.running("p/short", "p", "n0 n0", since=100, max_runtime=700)
    found = expected(world.queued("p/a", "p", 4).queued("p/b", "p", 2))
    assert found["p/a"].at is None
    assert found["p/a"].because.startswith("2 GPUs would be missing even after every workload")
    assert found["p/a"].because.endswith("hold, or will hold, 6 GPUs")
    assert found["p/b"].at == NOON + 600, "who cannot be told does not keep the others from being told"


def test_no_time_is_given_where_room_alone_is_not_what_it_waits_for() -> None:
    """A time that is always now would be no estimate, and news in every cycle."""
    world = World(n0=8).department("d", None).project("p", "d", None)
    world.running("p/late", "p", "n0 n0 n0 n0 n0 n0 n0 n0", since=5000, max_runtime=60)
    assert expected(world.queued("p/a", "p", 1))["p/a"] == Forecast(None, DUE)


@pytest.mark.parametrize(
    ("more", "because"),
    [
        ({"gpus": 16}, "it can never start as specified"),
        ({"suspended": True}, "a user has to resume it"),
        ({"depends_on": ("p/first",)}, "its dependencies have to complete first"),
    ],
)
def test_where_time_alone_does_not_help_it_says_what_would(more: dict[str, object], because: str) -> None:
    assert expected(full().queued("p/a", "p", 1, **more))["p/a"] == Forecast(None, because)


def test_a_backoff_is_waited_for() -> None:
    found = expected(full().queued("p/a", "p", 4, backoff_until=NOON + 900))
    assert found["p/a"].at == NOON + 900
