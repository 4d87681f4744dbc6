"""Release held tasks as earlier tasks end, and end arrays whose tasks have all ended.

At most PENDING_MAX released tasks of an array are pending, and at most `max_running` are pending or use
resources. Requeued tasks may exceed PENDING_MAX. Suspended tasks do not count.
"""

import uuid
from collections.abc import Collection, Sequence
from datetime import datetime

from django.db import connection

from berth.db.queries import prepared
from projects.models import WorkloadArray
from projects.models.arrays import PENDING_MAX, STOP_RULE_REASON, WAITING_MESSAGE, WAITING_REASON
from projects.services.arrays.counts import count_tasks_by_array
from projects.services.notifications import deliveries

LIVE = "('pending', 'reserved', 'starting', 'running', 'stopping', 'suspended')"
# Counts of each array's live tasks that are not held: all, pending, and those that count towards max_running.
RELEASED = f"""
    CROSS JOIN LATERAL (
        SELECT count(*) AS live, count(*) FILTER (WHERE task.phase = 'pending') AS pending,
               count(*) FILTER (WHERE task.phase <> 'suspended') AS counted
          FROM projects_workload AS task
         WHERE task.array_id = array_.id AND NOT task.superseded AND NOT task.held AND task.phase IN {LIVE}
    ) AS released
"""  # noqa: S608
ROOM = "least(%(most)s - released.pending, coalesce(array_.max_running, 2147483647) - released.counted)"
HAS_HELD = "EXISTS (SELECT FROM projects_workload AS task WHERE task.array_id = array_.id AND task.held)"
_HAS_TASK = """EXISTS (SELECT FROM projects_workload AS task
    WHERE task.array_id = array_.id AND NOT task.superseded AND task.phase {})"""
ANY_ACTIVE = "SELECT EXISTS (SELECT FROM projects_workloadarray WHERE state = 'active')"
DUE = f"""
    SELECT array_.id FROM projects_workloadarray AS array_ {RELEASED}
     WHERE array_.state = 'active' AND CASE WHEN {HAS_HELD} THEN {ROOM} > 0 ELSE released.live = 0 END
     ORDER BY array_.id
"""  # noqa: S608
LOCK = """
    SELECT id FROM projects_workloadarray WHERE id = ANY(%(arrays)s) ORDER BY id FOR NO KEY UPDATE
"""
LOCK_TASK_ARRAYS = """
    SELECT id FROM projects_workloadarray
     WHERE id IN (SELECT array_id FROM projects_workload WHERE id = ANY(%(tasks)s))
     ORDER BY id FOR NO KEY UPDATE
"""
RELEASE = f"""
    UPDATE projects_workload AS task
       SET held = false, reason = 'Submitted', message = 'Waiting for the next scheduling cycle.',
           since = %(now)s, pending_since = %(now)s, version = task.version + 1
      FROM projects_workloadarray AS array_ {RELEASED}
     CROSS JOIN LATERAL (
        SELECT id FROM projects_workload AS task WHERE task.array_id = array_.id AND task.held
         ORDER BY task.array_index LIMIT greatest({ROOM}, 0)
     ) AS next
     WHERE array_.id = ANY(%(arrays)s) AND task.id = next.id AND task.held
"""  # noqa: S608
# Lock the tasks in the same order as other transactions that lock several tasks.
HOLD = f"""
    WITH surplus AS MATERIALIZED (
        SELECT task.id FROM projects_workloadarray AS array_ {RELEASED}
         CROSS JOIN LATERAL (
            SELECT id FROM projects_workload AS task
             WHERE task.array_id = array_.id AND NOT task.superseded AND NOT task.held
               AND task.phase = 'pending'
             ORDER BY task.array_index DESC
             LIMIT greatest(released.counted - coalesce(array_.max_running, 2147483647), 0)
         ) AS task
         WHERE array_.id = %(array)s
    ), locked AS MATERIALIZED (
        SELECT id FROM projects_workload WHERE id IN (SELECT id FROM surplus) ORDER BY id FOR NO KEY UPDATE
    )
    UPDATE projects_workload AS task
       SET held = true, reason = %(reason)s, message = %(message)s, since = %(now)s, explanation = NULL,
           pending_reasons = task.pending_reasons
               || jsonb_build_object('reason', %(reason)s::text, 'since', %(now)s),
           version = task.version + 1
      FROM locked WHERE task.id = locked.id AND task.phase = 'pending' AND NOT task.held
"""  # noqa: S608
END = f"""
    UPDATE projects_workloadarray AS array_
       SET ended_at = %(now)s,
           state = CASE WHEN {_HAS_TASK.format("= 'failed'")} THEN 'failed'
                        WHEN {_HAS_TASK.format(f"= 'cancelled' AND task.reason <> '{STOP_RULE_REASON}'")}
                        THEN 'cancelled'
                        ELSE 'completed' END
     WHERE array_.id = ANY(%(arrays)s) AND array_.state = 'active' AND NOT {_HAS_TASK.format(f"IN {LIVE}")}
    RETURNING array_.id
"""  # noqa: S608


def arrays_to_advance() -> list[uuid.UUID]:
    """Return the arrays that have a task to release or whose tasks have all ended."""
    if prepared.fetch_one(ANY_ACTIVE, []) == (False,):
        return []
    with connection.cursor() as cursor:
        cursor.execute(DUE, {"most": PENDING_MAX})
        return [pk for (pk,) in cursor.fetchall()]


def lock_and_advance_arrays(arrays: Sequence[uuid.UUID], now: datetime) -> int:
    """Release tasks of the arrays, and end arrays whose tasks have all ended, in the caller's transaction.

    Return the number of released tasks and ended arrays.
    """
    lock_arrays(arrays)
    released = release_held_tasks(arrays, now)
    return released + end_finished_arrays(arrays, now)


def lock_arrays(arrays: Collection[uuid.UUID]) -> None:
    """Lock the arrays until the transaction ends. An array must be locked before its tasks."""
    with connection.cursor() as cursor:
        cursor.execute(LOCK, {"arrays": list(arrays)})


def lock_task_arrays(tasks: Collection[uuid.UUID]) -> None:
    """Lock the tasks' arrays until the transaction ends. Must be called before the tasks are locked."""
    with connection.cursor() as cursor:
        cursor.execute(LOCK_TASK_ARRAYS, {"tasks": list(tasks)})


def release_held_tasks(arrays: Collection[uuid.UUID], now: datetime) -> int:
    """Release as many tasks of locked arrays as their limits allow. Return the number of released tasks."""
    with connection.cursor() as cursor:
        cursor.execute(RELEASE, {"arrays": list(arrays), "most": PENDING_MAX, "now": now})
        return cursor.rowcount


def hold_excess_tasks(array: uuid.UUID, now: datetime) -> int:
    """Hold pending tasks of a locked array that exceeds `max_running`, highest indexes first.

    Return the number of held tasks.
    """
    texts = {"reason": WAITING_REASON, "message": WAITING_MESSAGE}
    with connection.cursor() as cursor:
        cursor.execute(HOLD, {"array": array, "now": now, **texts})
        return cursor.rowcount


def end_finished_arrays(arrays: Collection[uuid.UUID], now: datetime) -> int:
    """End locked arrays whose tasks have all ended, and notify subscribers.

    Return the number of ended arrays.
    """
    with connection.cursor() as cursor:
        cursor.execute(END, {"arrays": list(arrays), "now": now})
        ended = [pk for (pk,) in cursor.fetchall()]
    if ended:
        rows = WorkloadArray.objects.select_related("project__department", "submitted_by")
        ended_arrays = list(rows.filter(pk__in=ended).order_by("pk"))
        counts = count_tasks_by_array(ended_arrays)
        deliveries.enqueue_array_ends([(array, counts[array.pk].outcome) for array in ended_arrays], now)
    return len(ended)
