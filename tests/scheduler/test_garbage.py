"""Test that the scheduler collects garbage only between its steps."""

import subprocess
import sys
from datetime import timedelta

import pytest

from berth.core import garbage
from tests.scheduler.stage import Stage

SCRIPT = """
import gc, weakref
from berth.core.garbage import collect_deferred_garbage, defer_full_collections

class Node:
    def __init__(self):
        self.me = self

def full_collections():
    return gc.get_stats()[2]["collections"]

defer_full_collections()
before, garbage = full_collections(), Node()
observer = weakref.ref(garbage)
gc.collect(1)  # the object survives and is now visited by full collections only
del garbage
live = [[] for _ in range(3_000_000)]
assert full_collections() == before, "Python ran a full collection"
assert observer() is not None
assert collect_deferred_garbage()
assert observer() is None, "the garbage was not collected"
assert not collect_deferred_garbage(), "there is nothing to collect"
"""


@pytest.mark.heavy
def test_full_garbage_collections_run_only_when_requested() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


RECENT = """
import gc, weakref
from berth.core.garbage import collect_recent_garbage, defer_full_collections

class Node:
    def __init__(self):
        self.me = self

defer_full_collections()
assert not collect_recent_garbage(), "there are few new objects"
observer = weakref.ref(Node())
live = [[] for _ in range(100_000)]
assert observer() is not None, "Python collected new objects"
assert collect_recent_garbage()
assert observer() is None, "the garbage was not collected"
"""


def test_recent_garbage_is_collected_on_request() -> None:
    subprocess.run([sys.executable, "-c", RECENT], check=True)


REPEATED = """
import gc
from berth.core.garbage import collect_deferred_garbage, collect_recent_garbage, defer_full_collections

defer_full_collections()
before, live = [entry["collections"] for entry in gc.get_stats()], []
for _ in range(10):
    live += [[] for _ in range(60_000)]
    assert collect_recent_garbage()
after = [entry["collections"] for entry in gc.get_stats()]
assert [a - b for a, b in zip(after, before)] == [10, 0, 0], "objects were visited more than once"
assert collect_deferred_garbage(), "objects of earlier collections are visited by a full collection"
"""


def test_garbage_collection_of_recent_objects_visits_each_object_once() -> None:
    subprocess.run([sys.executable, "-c", REPEATED], check=True)


def test_process_that_does_not_defer_garbage_collection_ignores_requests_to_collect() -> None:
    script = "from berth.core.garbage import collect_deferred_garbage as run; assert not run()"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_full_garbage_collections_run_every_ten_minutes_and_while_no_workload_is_live(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes, collections = list[int](), list[int]()

    def collect() -> bool:
        collections.append(len(minutes))
        return False

    monkeypatch.setattr(garbage, "collect_deferred_garbage", collect)
    workload = stage.submit("train")
    for minute in range(25):
        minutes.append(minute)
        stage.tick()
        stage.clock.advance(timedelta(minutes=1).total_seconds())
    assert collections == [11, 21]
    stage.finish(workload)
    stage.tick(2)
    collections.clear()
    for _ in range(3):
        stage.clock.advance(timedelta(minutes=1).total_seconds())
        stage.tick()
    assert len(collections) == 3
