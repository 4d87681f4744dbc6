"""Tests for the fair-share table of the last cycle."""

from scheduler.models import QueueStatus
from scheduler.reports.fair_share.table import share_table
from scheduler.web.quotas.queue_rows import quota_lines
from tests.scheduler.stage import NOON, Stage

ALL = [{"name": "worker", "replicas": 2, "gpu": 2}]


def test_queues_are_sorted_by_rank_and_show_borrowed_and_missing_amounts(stage: Stage) -> None:
    cast = stage.cast
    cast.product.rank = 5
    cast.product.save()
    for project, share, held, requested in ((cast.ads, 0, 3000, 3000), (cast.vision, 4000, 1000, 9000)):
        QueueStatus.objects.create(
            pool=cast.pool, project=project, share=[share, 0, 0], allocated=[held, 0, 0],
            requested=[requested, 0, 0], usage=[0.25, 0, 0], at=NOON,
        )  # fmt: skip
    tree = share_table(cast.alice, cast.pool)
    assert [top.name for top, _ in tree] == ["product", "research"]
    (ads,) = [child for _, children in tree for child in children if child.name == "ads"]
    (vision,) = [child for _, children in tree for child in children if child.name == "vision"]
    assert (ads.allocated, ads.over_quota, ads.quota) == (3000, 3000, 0)
    assert (vision.quota, vision.share, vision.below_share, vision.used) == (4000, 4000, 3000, 0.25)


def test_members_see_their_project_but_not_department_figures(stage: Stage) -> None:
    stage.submit(roles=ALL)
    stage.tick(2)
    ((research, children),) = share_table(stage.cast.dave, stage.cast.pool)
    assert (research.numbers_visible, [child.name for child in children]) == (False, ["vision"])
    assert share_table(stage.cast.frank, stage.cast.pool) == []


def test_pending_gpu_count_is_the_same_as_on_the_overview(stage: Stage) -> None:
    cast = stage.cast
    stage.submit("waits", roles=ALL)
    QueueStatus.objects.create(
        pool=cast.pool, project=cast.vision, share=[4000, 0, 0], allocated=[1000, 0, 0],
        requested=[20_000, 0, 0], usage=[0, 0, 0], at=NOON,
    )  # fmt: skip
    ((_, (vision,)),) = share_table(cast.dave, cast.pool)
    ((_, (line,)),) = [(top, top.children) for top in quota_lines(cast.dave, [cast.pool])]
    assert vision.pending == line.pending == 4000
