"""A pool's queue in the order of the last cycle, as far as visible."""

from projects.models import Workload
from projects.services import workloads
from scheduler.models import Eviction
from scheduler.reports.evictions.matrix import Pair, grid, pairs
from scheduler.reports.queues.queue_list import NOT_LOOKED_AT, length_of, line_of
from tests import factories as make
from tests.scheduler.stage import Stage

ALL = [{"name": "worker", "replicas": 2, "gpu": 2}]


def filled(stage: Stage) -> None:
    """Two nodes of two GPUs, all taken; three wait: one of vision, two of ads."""
    stage.submit("holds", roles=ALL, priority=200)
    stage.tick(2)
    stage.submit("ours", roles=ALL)
    stage.submit("first", project=stage.cast.ads, roles=ALL, priority=90)
    stage.submit("second", project=stage.cast.ads, roles=ALL, priority=60)
    stage.tick()


def test_the_line_is_that_of_the_last_cycle_with_its_keys(stage: Stage) -> None:
    filled(stage)
    rows = list(line_of(stage.cast.alice, stage.cast.pool))
    assert [row.queue_position for row in rows] == [1, 2, 3]
    ads = [row.name for row in rows if row.project == stage.cast.ads]
    assert ads == ["first", "second"]
    assert all(row.explanation["ordering"] for row in rows)


def test_positions_count_everybody_though_only_one_s_own_are_listed(stage: Stage) -> None:
    filled(stage)
    everywhere = {row.name: row.queue_position for row in line_of(stage.cast.alice, stage.cast.pool)}
    grace = [(row.name, row.queue_position) for row in line_of(stage.cast.grace, stage.cast.pool)]
    assert grace == [(name, everywhere[name]) for name in ("first", "second")]
    assert list(line_of(stage.cast.frank, stage.cast.pool)) == []
    length = length_of(stage.cast.pool)
    assert (length.workloads, length.gpu_milli) == (3, 12_000)


def test_what_no_cycle_has_looked_at_yet_stands_last(stage: Stage) -> None:
    filled(stage)
    stage.submit("new", priority=99)
    last = list(line_of(stage.cast.alice, stage.cast.pool))[-1]
    assert (last.name, last.queue_position) == ("new", NOT_LOOKED_AT)


def test_who_starts_or_ends_is_no_longer_in_line(stage: Stage) -> None:
    filled(stage)
    workloads.cancel(acting=stage.cast.alice, workload=Workload.objects.get(name="first"))
    assert "first" not in [row.name for row in line_of(stage.cast.alice, stage.cast.pool)]


def test_evictions_add_up_by_who_gave_way_to_whom(stage: Stage) -> None:
    cast = stage.cast
    ours, theirs = (make.workload(project, "w") for project in (cast.vision, cast.ads))
    for lost in (600, 1200):
        make.eviction(ours, theirs, cast.pool, lost_gpu_seconds=lost)
    make.eviction(theirs, ours, cast.pool, lost_gpu_seconds=60)
    make.eviction(ours, None, cast.pool, kind="drain", lost_gpu_seconds=30)
    found = pairs(Eviction.objects.all())
    assert [(p.victim, p.preemptor, p.count, p.lost_gpu_seconds) for p in found] == [
        ("vision", "ads", 2, 1800), ("ads", "vision", 1, 60), ("vision", "", 1, 30),
    ]  # fmt: skip
    drawn = grid(found)
    assert drawn.preemptors == ("ads", "vision", "")
    assert [(name, [pair and pair.count for pair in cells]) for name, cells in drawn.rows] == [
        ("ads", [None, 1, None]), ("vision", [2, None, 1]),
    ]  # fmt: skip


def test_a_table_of_many_projects_shows_where_most_was_lost_and_counts_the_rest() -> None:
    found = [Pair(f"a{n:02}", f"b{n:02}", 1, 1000, n) for n in range(20)] + [Pair("a19", "b00", 1, 1000, 1)]
    told = grid(found)
    assert (len(told.victims), told.victims[0], told.victims[-1]) == (12, "a08", "a19")
    assert (told.preemptors[0], told.preemptors[-1]) == ("b08", "b19")
    assert told.omitted == 9
    assert grid(found[:3]).omitted == 0
