"""Update workloads' GPU totals, and release allocations with a record of their usage in each hour."""

import uuid
from collections.abc import Collection, Iterable
from datetime import datetime

from berth.db.queries import prepared

RECOUNT = """
    UPDATE projects_workload AS workload SET gpu_milli_now = total.gpu_milli
      FROM (SELECT current.id,
                   coalesce(sum(held.gpu_milli::bigint * cardinality(held.devices)), 0) AS gpu_milli
              FROM projects_workload AS current
              LEFT JOIN projects_pod AS pod ON pod.workload_id = current.id
              LEFT JOIN scheduler_allocation AS held ON held.pod_id = pod.id AND held.released_at IS NULL
             WHERE current.id = ANY(%s)
             GROUP BY current.id) AS total
     WHERE workload.id = total.id AND workload.gpu_milli_now <> total.gpu_milli
"""
RELEASE = """
    WITH ended AS (
        UPDATE scheduler_allocation SET released_at = %(at)s
         WHERE pod_id = ANY(%(pods)s::uuid[]) AND released_at IS NULL
        RETURNING *
    ), freed AS (
        DELETE FROM scheduler_deviceclaim AS claim USING scheduler_allocation AS held
         WHERE held.id = claim.allocation_id AND held.pod_id = ANY(%(pods)s::uuid[])
    )
    INSERT INTO scheduler_usagehour AS stored
        (hour, pool_id, pool_name, department_id, department_name, project_id, project_name, user_name,
         gpu_milli_seconds, cpu_milli_seconds, memory_mib_seconds)
    SELECT hour, pool.id, pool.name, department.id, department.name, project.id, project.name,
           coalesce(person.username, ''),
           round(sum(held.gpu_milli::bigint * cardinality(held.devices) * lasted)),
           round(sum(held.cpu_milli * lasted)), round(sum(held.memory_mib * lasted))
      FROM ended AS held
      JOIN pools_node AS node ON node.id = held.node_id
      JOIN pools_nodepool AS pool ON pool.id = node.pool_id
      JOIN projects_pod AS pod ON pod.id = held.pod_id
      JOIN projects_workload AS workload ON workload.id = pod.workload_id
      JOIN projects_project AS project ON project.id = workload.project_id
      JOIN projects_department AS department ON department.id = project.department_id
      LEFT JOIN auth_user AS person ON person.id = workload.submitted_by_id
     CROSS JOIN LATERAL generate_series(
           date_trunc('hour', held.bound_at), held.released_at, interval '1 hour') AS hour
     CROSS JOIN LATERAL (SELECT extract(epoch FROM
           least(held.released_at, hour + interval '1 hour') - greatest(held.bound_at, hour))
           AS lasted) AS part
     WHERE lasted > 0
     GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
     ORDER BY 1, 2, 6, 8
    ON CONFLICT (hour, pool_id, project_id, user_name) DO UPDATE SET
        gpu_milli_seconds = stored.gpu_milli_seconds + EXCLUDED.gpu_milli_seconds,
        cpu_milli_seconds = stored.cpu_milli_seconds + EXCLUDED.cpu_milli_seconds,
        memory_mib_seconds = stored.memory_mib_seconds + EXCLUDED.memory_mib_seconds
"""


def update_gpu_totals(workloads: Iterable[uuid.UUID]) -> None:
    """Recompute the stored GPU totals of workloads from their allocations."""
    ids = sorted(set(workloads))
    if ids:
        prepared.execute(RECOUNT, [ids])


def release_allocations(pods: Collection[uuid.UUID], at: datetime) -> None:
    """Release the allocations of pods, and add their usage to the hourly records.

    A second call has no effect.
    """
    if pods:
        prepared.execute(RELEASE, {"at": at, "pods": list(pods)})
