"""Write measurements and delete old ones."""

import json
from datetime import datetime

from django.db import connection, transaction

from berth.db.loops.crash_points import crash_point
from berth.db.loops.lease import HeldLease, fenced_transaction
from scheduler.models import NodeUtilization, PodUtilization, UtilizationPoint
from scheduler.reports.utilization.readings import PodReading, Readings

MINUTE, HOUR = 60, 3600
READINGS_CTE = """
    WITH reading AS (
        SELECT reading.* FROM jsonb_to_recordset(%(readings)s::jsonb) AS reading(
            pod_id uuid, at timestamptz, seconds float, cpu_seconds float, cpu_milli int, memory_mib int,
            devices jsonb, busy_at timestamptz, gpu_milli int, busy_milli int, gpu_memory_mib int)
          JOIN projects_pod ON projects_pod.id = reading.pod_id
    )
"""
UPSERT_CURRENT = f"""{READINGS_CTE}
    INSERT INTO {PodUtilization._meta.db_table}
           (pod_id, at, cpu_seconds, cpu_milli, memory_mib, devices, busy_at)
    SELECT pod_id, at, cpu_seconds, cpu_milli, memory_mib, devices, busy_at FROM reading ORDER BY pod_id
    ON CONFLICT (pod_id) DO UPDATE SET
        at = EXCLUDED.at, cpu_seconds = EXCLUDED.cpu_seconds, cpu_milli = EXCLUDED.cpu_milli,
        memory_mib = EXCLUDED.memory_mib, devices = EXCLUDED.devices, busy_at = EXCLUDED.busy_at
"""  # noqa: S608
UPSERT_POINTS = f"""{READINGS_CTE}
    INSERT INTO {UtilizationPoint._meta.db_table} AS stored
           (pod_id, step, at, seconds, cpu_milli_seconds, memory_mib, gpu_milli_seconds,
            gpu_busy_milli_seconds, gpu_memory_mib)
    SELECT pod_id, step, to_timestamp(floor(extract(epoch FROM at) / step) * step), seconds,
           cpu_milli * seconds, memory_mib, gpu_milli * seconds,
           gpu_milli * coalesce(busy_milli, 0) * seconds / 1000, gpu_memory_mib
      FROM reading CROSS JOIN unnest(%(steps)s) AS step
     ORDER BY pod_id, step
    ON CONFLICT (pod_id, step, at) DO UPDATE SET
        seconds = stored.seconds + EXCLUDED.seconds,
        cpu_milli_seconds = stored.cpu_milli_seconds + EXCLUDED.cpu_milli_seconds,
        memory_mib = greatest(stored.memory_mib, EXCLUDED.memory_mib),
        gpu_milli_seconds = stored.gpu_milli_seconds + EXCLUDED.gpu_milli_seconds,
        gpu_busy_milli_seconds = stored.gpu_busy_milli_seconds + EXCLUDED.gpu_busy_milli_seconds,
        gpu_memory_mib = greatest(stored.gpu_memory_mib, EXCLUDED.gpu_memory_mib)
"""  # noqa: S608
UPSERT_NODES = f"""
    INSERT INTO {NodeUtilization._meta.db_table} (node_id, at, devices)
    SELECT reading.node_id, %(at)s, reading.devices
      FROM jsonb_to_recordset(%(readings)s::jsonb) AS reading(node_id bigint, devices jsonb)
      JOIN pools_node ON pools_node.id = reading.node_id
     ORDER BY reading.node_id
    ON CONFLICT (node_id) DO UPDATE SET at = EXCLUDED.at, devices = EXCLUDED.devices
"""  # noqa: S608
DELETE_POINTS = f"""
    DELETE FROM {UtilizationPoint._meta.db_table} WHERE id IN (
        SELECT id FROM {UtilizationPoint._meta.db_table} WHERE step = %s AND at < %s LIMIT %s)
"""  # noqa: S608
BATCH_SIZE = 20_000


def write_readings(readings: Readings, lease: HeldLease) -> None:
    """Store readings in one transaction.

    The `lease` prevents two processes from counting the same seconds.
    """
    pods = json.dumps([_reading_row(reading) for reading in readings.pods])
    nodes = [{"node_id": pk, "devices": devices} for pk, devices in (readings.nodes or {}).items()]
    with fenced_transaction(lease), connection.cursor() as cursor:
        cursor.execute(UPSERT_CURRENT, {"readings": pods})
        crash_point("use.now")
        cursor.execute(UPSERT_POINTS, {"readings": pods, "steps": [MINUTE, HOUR]})
        crash_point("use.over_time")
        cursor.execute(UPSERT_NODES, {"readings": json.dumps(nodes), "at": readings.at})
        crash_point("use.before_end")


def delete_old_measurements(*, minutes_before: datetime, hours_before: datetime) -> int:
    """Delete old points and old measurements, as well as the measurements of nodes that no longer exist.

    Return the number of deleted rows.
    """
    deleted = sum(
        _delete_points(step, before) for step, before in ((MINUTE, minutes_before), (HOUR, hours_before))
    )
    with transaction.atomic():
        deleted += PodUtilization.objects.filter(pod__ended_at__isnull=False, at__lt=minutes_before).delete()[
            0
        ]
        deleted += NodeUtilization.objects.filter(node__state="ended").delete()[0]
    return deleted


def _delete_points(step: int, before: datetime) -> int:
    """Delete old points in small batches, so that other transactions are not blocked for long."""
    dropped = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(DELETE_POINTS, [step, before, BATCH_SIZE])
            dropped += cursor.rowcount
            if cursor.rowcount < BATCH_SIZE:
                return dropped


def _reading_row(reading: PodReading) -> dict[str, object]:
    return {
        "pod_id": str(reading.pod_id),
        "at": reading.at.isoformat(),
        "seconds": reading.seconds,
        "cpu_seconds": reading.cpu_seconds,
        "cpu_milli": reading.cpu_milli,
        "memory_mib": reading.memory_mib,
        "devices": reading.devices,
        "busy_at": reading.busy_at and reading.busy_at.isoformat(),
        "gpu_milli": reading.gpu_milli,
        "busy_milli": reading.busy_milli,
        "gpu_memory_mib": reading.gpu_memory_mib,
    }
