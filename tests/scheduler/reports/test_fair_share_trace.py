"""Tests that fair-share explanations read no workloads after a cycle."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduler.models import QueueStatus
from scheduler.reports.fair_share.trace import full_share_traces
from tests.scheduler.stage import Stage

pytestmark = pytest.mark.django_db


def test_fair_share_trace_of_a_stored_cycle_equals_the_trace_computed_from_workloads(stage: Stage) -> None:
    cast = stage.cast
    stage.quota(cast.product, 2)
    for number in range(3):
        stage.submit(f"mine-{number}", roles=[{"name": "w", "replicas": 1, "gpu": 1}])
        stage.submit(f"theirs-{number}", cast.ads, roles=[{"name": "w", "min": 1, "max": 2, "gpu": 0.5}])
    stage.tick(2)
    owners = (cast.product, cast.vision, cast.ads)
    left = [full_share_traces(owner, cast.pool) for owner in owners]
    QueueStatus.objects.all().delete()
    assert left == [full_share_traces(owner, cast.pool) for owner in owners]
    assert any(chapter.rounds for chapters in left for chapter in chapters)


def test_fair_share_trace_reads_no_workloads(stage: Stage) -> None:
    stage.quota(stage.cast.product, 2)
    stage.submit("train")
    stage.tick()
    with CaptureQueriesContext(connection) as queries:
        full_share_traces(stage.cast.vision, stage.cast.pool)
    assert not [query["sql"] for query in queries.captured_queries if "projects_workload" in query["sql"]]
