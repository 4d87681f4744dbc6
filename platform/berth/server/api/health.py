"""Liveness and readiness endpoints."""

import time

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

_migrated = False


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Report that the process responds.

    The database is not queried, because a slow database must not cause a restart of this process.
    """
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Report whether the database responds and all migrations are applied."""
    started = time.perf_counter()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        checks = {"database": True, "migrations": _is_migrated()}
    except Exception:  # any error means that the database is not ready
        checks = {"database": False, "migrations": False}
    ready = all(checks.values())
    body = {
        "status": "ready" if ready else "not ready",
        "checks": checks,
        "milliseconds": round((time.perf_counter() - started) * 1000, 1),
    }
    return JsonResponse(body, status=200 if ready else 503)


def _is_migrated() -> bool:
    """Return whether all migrations are applied. A positive result is cached."""
    global _migrated  # noqa: PLW0603
    if not _migrated:
        executor = MigrationExecutor(connection)
        _migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
    return _migrated
