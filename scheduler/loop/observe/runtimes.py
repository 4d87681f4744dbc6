"""Expected runtime of each project's workloads, estimated from recently completed workloads."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import connection

from scheduler.engine.expected_runtime import LAST_RUNS, expected_runtime

REFRESH_AFTER = timedelta(minutes=5)  # expected runtimes change slowly, and reading them takes time

LAST_RUNTIMES = """
SELECT project.id, array_agg(last.seconds)
  FROM projects_project AS project
 CROSS JOIN LATERAL (
       SELECT extract(epoch FROM work.ended_at - work.started_at)::bigint AS seconds
         FROM projects_workload AS work
        WHERE work.project_id = project.id AND work.phase = 'completed'
          AND work.kind IN ('training', 'elastic') AND work.started_at IS NOT NULL
        ORDER BY work.ended_at DESC
        LIMIT %s) AS last
 GROUP BY project.id
"""


class ExpectedRuntimes:
    """Expected runtime of each project's workloads, reloaded once it is older than REFRESH_AFTER."""

    def __init__(self) -> None:
        self._read_at: datetime | None = None
        self._expected: Mapping[int, int] = {}

    def current_runtimes(self, now: datetime) -> Mapping[int, int]:
        """Return the expected runtime in seconds for each project with enough completed workloads."""
        if self._read_at is None or not self._read_at <= now < self._read_at + REFRESH_AFTER:
            self._read_at, self._expected = now, _read_expected_runtimes()
        return self._expected


def _read_expected_runtimes() -> dict[int, int]:
    with connection.cursor() as cursor:
        cursor.execute(LAST_RUNTIMES, [LAST_RUNS])
        expected = {project: expected_runtime(seconds) for project, seconds in cursor.fetchall()}
    return {project: seconds for project, seconds in expected.items() if seconds is not None}
