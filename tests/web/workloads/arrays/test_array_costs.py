"""Tests that array progress and the empty search do not read all ended workloads."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from berth.server.web.search.workloads import current_workload_hits
from projects.actor import Actor
from projects.models import Phase, Workload
from projects.models.workloads import ENDED_PHASES
from projects.web.arrays.progress import load_progress
from tests import factories as make
from tests.cast import Cast
from tests.web.search.test_search import array

ENDED = 2000


def rows_read(queries: CaptureQueriesContext | list[dict[str, str]]) -> int:
    """Return the number of rows that the queries read from the table of workloads, filtered rows included."""
    total = 0
    for query in queries:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query['sql']}")
            plan = cursor.fetchone()[0]
        total += _rows_of((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
    return total


def _rows_of(node: dict[str, Any]) -> int:
    own = 0
    if node.get("Relation Name") == "projects_workload":
        removed = sum(value for key, value in node.items() if key.startswith("Rows Removed by"))
        own = (node["Actual Rows"] + removed) * node["Actual Loops"]
    return int(own) + sum(map(_rows_of, node.get("Plans", ())))


def create_ended_workloads(cast: Cast, phase: Phase, **columns: Any) -> None:
    create_workloads(cast, phase, make.ago(days=3), **columns)


def create_workloads(cast: Cast, phase: Phase, at: datetime, **columns: Any) -> None:
    times = {
        "submitted_at": at,
        "first_started_at": at,
        "ended_at": at if phase in ENDED_PHASES else None,
        "since": at,
    }
    Workload.objects.bulk_create(
        Workload(
            project=cast.vision, name=f"{phase}-{number}", spec={}, submitted_by=cast.dave.user, phase=phase,
            pools=[cast.pool.name],
            array_index=number + 2 if "array" in columns else None, **times, **columns,
        )
        for number in range(ENDED)
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE projects_workload")


@pytest.mark.heavy
def test_array_progress_counts_ended_tasks_without_loading_their_rows(cast: Cast) -> None:
    grid = array(cast, "grid", "running", "pending")
    create_ended_workloads(cast, Phase.COMPLETED, array=grid)
    with CaptureQueriesContext(connection) as queries:
        progress = load_progress([grid])[grid.pk]
    assert progress.counts.completed == ENDED
    assert progress.since < timezone.now() - timedelta(days=2), "the first task started three days ago"
    others = [query for query in queries.captured_queries if "COUNT(" not in query["sql"]]
    assert others and rows_read(others) < 50


@pytest.mark.heavy
@pytest.mark.parametrize("mine", [True, False])
def test_empty_search_does_not_load_old_failures(cast: Cast, mine: bool) -> None:
    make.workload(cast.vision, "probe", phase="failed", ended_at=make.ago(hours=1), by=cast.dave.user)
    create_ended_workloads(cast, Phase.FAILED)
    with CaptureQueriesContext(connection) as queries:
        hits = current_workload_hits(Actor.for_user(cast.dave.user), timezone.now(), mine=mine)
    assert [hit.title for hit in hits] == ["probe"]
    assert rows_read(queries) < 50


@pytest.mark.heavy
@pytest.mark.parametrize("mine", [True, False])
def test_empty_search_does_not_sort_all_pending_workloads(cast: Cast, mine: bool) -> None:
    create_workloads(cast, Phase.PENDING, timezone.now())
    with CaptureQueriesContext(connection) as queries:
        hits = current_workload_hits(Actor.for_user(cast.dave.user), timezone.now(), mine=mine)
    assert len(hits) == 6
    assert rows_read(queries) < 500
