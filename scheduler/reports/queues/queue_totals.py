"""Queue totals: resources that are allocated to pods, or reserved for replicas that cannot start yet.

Both count towards quotas and fair shares.
"""

from collections.abc import Collection
from dataclasses import dataclass

from django.db import connection

from pools.models import NodePool

Owner = tuple[int | None, int | None]  # department ID or project ID; the other is None
Key = tuple[int, Owner]  # pool ID and owner
Amounts3 = tuple[int, int, int]
ZERO: Amounts3 = (0, 0, 0)
GPU = 0

# Few pods and workloads hold resources, so they are looked up one by one.
# For a plain join, PostgreSQL would scan both tables, which contain all ended pods and workloads.
TOTALS_BY_QUEUE = """
    SELECT held.pool_id, project.department_id, project.id, held.is_reserved,
           sum(held.gpu_milli), sum(held.cpu_milli), sum(held.memory_mib)
      FROM (
        SELECT node.pool_id, pod.workload_id, FALSE AS is_reserved,
               allocation.gpu_milli::bigint * cardinality(allocation.devices) AS gpu_milli,
               allocation.cpu_milli::bigint, allocation.memory_mib::bigint
          FROM scheduler_allocation AS allocation
          JOIN pools_node AS node ON node.id = allocation.node_id
         CROSS JOIN LATERAL (
               SELECT workload_id FROM projects_pod WHERE id = allocation.pod_id LIMIT 1) AS pod
         WHERE allocation.released_at IS NULL
         UNION ALL
        SELECT node.pool_id, reservation.workload_id, TRUE,
               reservation.gpu_milli::bigint * cardinality(reservation.devices),
               coalesce(role.cpu_milli, 0)::bigint, coalesce(role.memory_mib, 0)::bigint
          FROM scheduler_reservation AS reservation
          JOIN pools_node AS node ON node.id = reservation.node_id
          LEFT JOIN LATERAL (
               SELECT cpu_milli, memory_mib FROM projects_workloadrole
                WHERE workload_id = reservation.workload_id AND name = reservation.role LIMIT 1
               ) AS role ON TRUE
      ) AS held
     CROSS JOIN LATERAL (
           SELECT project_id, preemptible FROM projects_workload WHERE id = held.workload_id LIMIT 1
           ) AS workload
      JOIN projects_project AS project ON project.id = workload.project_id
     WHERE (held.pool_id = ANY(%(pools)s) OR %(pools)s IS NULL)
       AND (workload.preemptible = %(preemptible)s OR %(preemptible)s IS NULL)
     GROUP BY 1, 2, 3, 4
"""


@dataclass(frozen=True, slots=True)
class QueueTotals:
    """Resources of one queue in one pool: milli-GPU, milli-CPU and MiB."""

    allocated: Amounts3 = ZERO
    reserved: Amounts3 = ZERO

    def plus(self, other: "QueueTotals") -> "QueueTotals":
        return QueueTotals(
            _add_amounts(self.allocated, other.allocated), _add_amounts(self.reserved, other.reserved)
        )


NOTHING = QueueTotals()


def totals_by_queue(
    pools: Collection[NodePool] | None = None, *, preemptible: bool | None = None
) -> dict[Key, QueueTotals]:
    """Return the allocated and reserved resources, keyed by pool and queue.

    A department's total includes its projects. If `pools` or `preemptible` is set, only matching workloads
    are counted.
    """
    result: dict[Key, QueueTotals] = {}
    only = None if pools is None else [pool.pk for pool in pools]
    with connection.cursor() as cursor:
        cursor.execute(TOTALS_BY_QUEUE, {"pools": only, "preemptible": preemptible})
        for pool, department, project, is_reserved, *amounts in cursor.fetchall():
            gpu, cpu, memory = (int(amount or 0) for amount in amounts)
            part = (
                QueueTotals(reserved=(gpu, cpu, memory)) if is_reserved else QueueTotals((gpu, cpu, memory))
            )
            for key in ((pool, (None, project)), (pool, (department, None))):
                result[key] = result.get(key, NOTHING).plus(part)
    return result


def _add_amounts(left: Amounts3, right: Amounts3) -> Amounts3:
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]
