"""Liveness and readiness endpoints."""

import time

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

_migrated = False


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers; nothing else is asked, so that a slow database does not get it restarted."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """The database answers and has the tables that this version needs."""
    began = time.perf_counter()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        checks = {"database": True, "migrations": _is_migrated()}
    except Exception:  # whatever keeps it from answering, it is not ready
        checks = {"database": False, "migrations": False}
    ready = all(checks.values())
    answer = {
        "status": "ready" if ready else "not ready",
        "checks": checks,
        "milliseconds": round((time.perf_counter() - began) * 1000, 1),
    }
    return JsonResponse(answer, status=200 if ready else 503)


def _is_migrated() -> bool:
    """Looked up until it is true: tables do not go away while a process runs."""
    global _migrated  # noqa: PLW0603
    if not _migrated:
        executor = MigrationExecutor(connection)
        _migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
    return _migrated
