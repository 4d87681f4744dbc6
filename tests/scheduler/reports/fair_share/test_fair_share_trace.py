"""Tests for fair-share explanations after a cycle."""

from dataclasses import replace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduler.models import QueueStatus
from scheduler.reports.fair_share.explain import SCALE_UP, split_request
from scheduler.reports.fair_share.trace import ShareTrace, unredacted_share_traces
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
    left = [_without_request(unredacted_share_traces(owner, cast.pool)) for owner in owners]
    QueueStatus.objects.all().delete()
    assert left == [_without_request(unredacted_share_traces(owner, cast.pool)) for owner in owners]
    assert any(chapter.rounds for chapters in left for chapter in chapters)


def _without_request(traces: list[ShareTrace]) -> list[ShareTrace]:
    """Return the traces without their first sentence. Its parts are known only after a cycle."""
    return [replace(trace, explanation=trace.explanation[1:]) for trace in traces]


def test_fair_share_trace_splits_the_request_like_the_fair_share_table(stage: Stage) -> None:
    cast = stage.cast
    stage.quota(cast.product, 2)
    stage.submit("elastic", cast.ads, roles=[{"name": "w", "min": 1, "max": 3, "gpu": 1}])
    stage.tick(2)
    stage.submit("large", cast.ads, roles=[{"name": "w", "replicas": 4, "gpu": 2}])
    stage.tick()
    (status,) = QueueStatus.objects.filter(project=cast.ads)
    allocated, requested = status.allocated[0] // 1000, status.requested[0] // 1000
    assert (allocated, requested) == (3, 11)
    (trace,) = [
        trace for trace in unredacted_share_traces(cast.ads, cast.pool)
        if (trace.kind, trace.resource) == ("project", "gpu")
    ]  # fmt: skip
    assert trace.explanation[0].startswith("Total request: 11 GPUs (3 allocated + 8 pending)")


@pytest.mark.parametrize(
    ("amounts", "parts"),
    [
        ((25_000, 12_000, 0, 10_000), {"allocated": 12_000, "pending": 10_000, SCALE_UP: 3000}),
        ((12_000, 4000, 8000, 0), {"allocated": 4000, "reserved": 8000}),
        ((4000, 0, 0, 4000), {"pending": 4000}),
        ((4000, 1000, 0, 5000), {"allocated": 1000, f"pending or {SCALE_UP}": 3000}),
        ((4000, 1000, 0, None), {"allocated": 1000, f"pending or {SCALE_UP}": 3000}),
        ((4000, 5000, 0, 0), {}),
    ],
)
def test_parts_of_a_split_request_add_up_to_the_request(
    amounts: tuple[int, int, int, int | None], parts: dict[str, int]
) -> None:
    assert split_request(*amounts) == parts


def test_fair_share_trace_sums_pending_gpus_in_one_query(stage: Stage) -> None:
    stage.quota(stage.cast.product, 2)
    stage.submit("train")
    stage.tick()
    with CaptureQueriesContext(connection) as queries:
        unredacted_share_traces(stage.cast.vision, stage.cast.pool)
    about = [query["sql"] for query in queries.captured_queries if "projects_workload" in query["sql"]]
    assert len(about) == 1 and 'SUM("projects_workload"."gpu_milli_min")' in about[0]
