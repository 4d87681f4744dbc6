"""Write measurements and delete old ones.

One statement for each table, one transaction for all of them: a crash leaves all of a look or nothing.
"""

import json
from datetime import datetime

from django.db import connection, transaction

from berth.db.crash_points import crash_point
from berth.db.lease import Held, fenced
from scheduler.models import NodeUse, PodUse, UsePoint
from scheduler.reports.utilization.readings import Reading, Readings

MINUTE, HOUR = 60, 3600
TOLD = """
    WITH told AS (
        SELECT told.* FROM jsonb_to_recordset(%(told)s::jsonb) AS told(
            pod_id uuid, at timestamptz, seconds float, cpu_seconds float, cpu_milli int, memory_mib int,
            devices jsonb, busy_at timestamptz, gpu_milli int, busy_milli int, gpu_memory_mib int)
          JOIN projects_pod ON projects_pod.id = told.pod_id
    )
"""
NOW = f"""{TOLD}
    INSERT INTO {PodUse._meta.db_table} AS known
           (pod_id, at, cpu_seconds, cpu_milli, memory_mib, devices, busy_at)
    SELECT pod_id, at, cpu_seconds, cpu_milli, memory_mib, devices, busy_at FROM told ORDER BY pod_id
    ON CONFLICT (pod_id) DO UPDATE SET
        at = EXCLUDED.at, cpu_seconds = EXCLUDED.cpu_seconds, cpu_milli = EXCLUDED.cpu_milli,
        memory_mib = EXCLUDED.memory_mib, devices = EXCLUDED.devices, busy_at = EXCLUDED.busy_at
"""  # noqa: S608
OVER_TIME = f"""{TOLD}
    INSERT INTO {UsePoint._meta.db_table} AS known
           (pod_id, step, at, seconds, cpu_milli_seconds, memory_mib, gpu_milli_seconds,
            gpu_busy_milli_seconds, gpu_memory_mib)
    SELECT pod_id, step, to_timestamp(floor(extract(epoch FROM at) / step) * step), seconds,
           cpu_milli * seconds, memory_mib, gpu_milli * seconds,
           gpu_milli * coalesce(busy_milli, 0) * seconds / 1000, gpu_memory_mib
      FROM told CROSS JOIN unnest(%(steps)s) AS step
     ORDER BY pod_id, step
    ON CONFLICT (pod_id, step, at) DO UPDATE SET
        seconds = known.seconds + EXCLUDED.seconds,
        cpu_milli_seconds = known.cpu_milli_seconds + EXCLUDED.cpu_milli_seconds,
        memory_mib = greatest(known.memory_mib, EXCLUDED.memory_mib),
        gpu_milli_seconds = known.gpu_milli_seconds + EXCLUDED.gpu_milli_seconds,
        gpu_busy_milli_seconds = known.gpu_busy_milli_seconds + EXCLUDED.gpu_busy_milli_seconds,
        gpu_memory_mib = greatest(known.gpu_memory_mib, EXCLUDED.gpu_memory_mib)
"""  # noqa: S608
ON_NODES = f"""
    INSERT INTO {NodeUse._meta.db_table} AS known (node_id, at, devices)
    SELECT told.node_id, %(at)s, told.devices
      FROM jsonb_to_recordset(%(told)s::jsonb) AS told(node_id bigint, devices jsonb)
      JOIN pools_node ON pools_node.id = told.node_id
     ORDER BY told.node_id
    ON CONFLICT (node_id) DO UPDATE SET at = EXCLUDED.at, devices = EXCLUDED.devices
"""  # noqa: S608
DROP = f"""
    DELETE FROM {UsePoint._meta.db_table} WHERE id IN (
        SELECT id FROM {UsePoint._meta.db_table} WHERE step = %s AND at < %s LIMIT %s)
"""  # noqa: S608
AT_ONCE = 20_000


def write_down(found: Readings, held: Held) -> None:
    """While `held` leads what is measured, so that nobody counts the same seconds twice."""
    told = json.dumps([_row(each) for each in found.pods])
    nodes = [{"node_id": pk, "devices": devices} for pk, devices in (found.nodes or {}).items()]
    with fenced(held), connection.cursor() as cursor:
        cursor.execute(NOW, {"told": told})
        crash_point("use.now")
        cursor.execute(OVER_TIME, {"told": told, "steps": [MINUTE, HOUR]})
        crash_point("use.over_time")
        cursor.execute(ON_NODES, {"told": json.dumps(nodes), "at": found.at})
        crash_point("use.before_end")


def forget_old(*, minutes_before: datetime, hours_before: datetime) -> int:
    """Returns how many points went, and how many pods and nodes that are no more."""
    gone = sum(_drop(step, before) for step, before in ((MINUTE, minutes_before), (HOUR, hours_before)))
    with transaction.atomic():
        gone += PodUse.objects.filter(pod__ended_at__isnull=False, at__lt=minutes_before).delete()[0]
        gone += NodeUse.objects.filter(node__state="ended").delete()[0]
    return gone


def _drop(step: int, before: datetime) -> int:
    """Piece by piece, so that nobody waits for it."""
    dropped = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(DROP, [step, before, AT_ONCE])
            dropped += cursor.rowcount
            if cursor.rowcount < AT_ONCE:
                return dropped


def _row(reading: Reading) -> dict[str, object]:
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
