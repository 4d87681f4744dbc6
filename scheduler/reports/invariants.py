"""Check the scheduling invariants in the database.

Only live rows are read, because monitoring runs the checks often.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from berth.db.models import Lease

SCHEDULER_LEASE = "scheduler"
HALF_STARTED_AFTER = timedelta(minutes=5)

OVERSOLD_DEVICES = """
    SELECT node.name, claim.device, sum(claim.milli) FROM scheduler_deviceclaim AS claim
      JOIN pools_node AS node ON node.id = claim.node_id
     GROUP BY 1, 2, node.gpus HAVING sum(claim.milli) > 1000 OR claim.device >= node.gpus ORDER BY 1, 2
"""
OVERSOLD_NODES = """
    SELECT node.name, sum(held.cpu_milli), sum(held.memory_mib), count(*) FROM scheduler_allocation AS held
      JOIN pools_node AS node ON node.id = held.node_id JOIN pools_nodepool AS pool ON pool.id = node.pool_id
     WHERE held.released_at IS NULL
     GROUP BY node.id, pool.cpu_load_limit
    HAVING sum(held.cpu_milli) * 1000 > node.cpu_milli::bigint * pool.cpu_load_limit
        OR sum(held.memory_mib) > node.memory_mib OR count(*) > node.max_pods ORDER BY 1
"""
LIVE = "('starting', 'running', 'stopping')"
UNMATCHED_ALLOCATIONS = f"""
    SELECT coalesce(pod.id, held.pod_id), coalesce(pod.state, 'no longer live') FROM
           (SELECT id, state FROM projects_pod WHERE state IN {LIVE}) AS pod
      FULL JOIN (SELECT pod_id FROM scheduler_allocation WHERE released_at IS NULL) AS held
        ON held.pod_id = pod.id
     WHERE pod.id IS NULL OR held.pod_id IS NULL ORDER BY 1
"""  # noqa: S608
MISMATCHED_CLAIMS = """
    SELECT held.pod_id, cardinality(held.devices), count(claim.id) FROM scheduler_allocation AS held
      LEFT JOIN scheduler_deviceclaim AS claim ON claim.allocation_id = held.id
       AND claim.device = ANY(held.devices) AND claim.milli = held.gpu_milli
     WHERE held.released_at IS NULL
     GROUP BY held.id HAVING count(claim.id) <> cardinality(held.devices)
     UNION ALL
    SELECT held.pod_id, 0, count(*) FROM scheduler_deviceclaim AS claim
      JOIN scheduler_allocation AS held ON held.id = claim.allocation_id
     WHERE held.released_at IS NOT NULL GROUP BY held.id
     ORDER BY 1
"""
ORPHANED_PODS = f"""
    SELECT workload.name, workload.phase, pod.state FROM projects_pod AS pod
      JOIN projects_workload AS workload ON workload.id = pod.workload_id
     WHERE pod.state IN {LIVE} AND workload.phase NOT IN {LIVE} ORDER BY 1
"""  # noqa: S608
HALF_STARTED_GANGS = """
    SELECT workload.name, workload.since FROM projects_workload AS workload
     WHERE workload.phase = 'starting' AND workload.since < %(half_started)s
       AND EXISTS (SELECT 1 FROM projects_pod AS pod WHERE pod.workload_id = workload.id
                      AND pod.run = workload.run AND pod.state IN ('running', 'succeeded'))
     ORDER BY 1
"""
# Count only allocations after the last edit of the limit or its group. Older allocations may exceed it.
EXCEEDED_LIMITS = """
    SELECT coalesce(mine.name, above.name), coalesce(shared.name, pool.name), quota.limit_gpu_milli,
           sum(held.gpu_milli::bigint * cardinality(held.devices)) AS holds
      FROM projects_quota AS quota
      LEFT JOIN pools_quotagroup AS shared ON shared.id = quota.group_id
      JOIN pools_nodepool AS pool ON pool.id = quota.pool_id OR pool.quota_group_id = quota.group_id
      LEFT JOIN projects_project AS mine ON mine.id = quota.project_id
      LEFT JOIN projects_department AS above ON above.id = quota.department_id
      JOIN projects_project AS owner
        ON owner.id = quota.project_id OR owner.department_id = quota.department_id
      JOIN projects_workload AS workload ON workload.project_id = owner.id
      JOIN projects_pod AS pod ON pod.workload_id = workload.id
      JOIN scheduler_allocation AS held ON held.pod_id = pod.id AND held.released_at IS NULL
       AND held.bound_at > greatest(quota.updated_at, shared.updated_at)
      JOIN pools_node AS node ON node.id = held.node_id AND node.pool_id = pool.id
     WHERE quota.limit_gpu_milli IS NOT NULL
     GROUP BY quota.id, mine.name, above.name, coalesce(shared.name, pool.name)
    HAVING sum(held.gpu_milli::bigint * cardinality(held.devices)) > quota.limit_gpu_milli ORDER BY 1, 2
"""
WRONG_GPU_TOTALS = """
    SELECT workload.name, workload.gpu_milli_now FROM projects_workload AS workload
      LEFT JOIN (
        SELECT pod.workload_id, sum(held.gpu_milli::bigint * cardinality(held.devices)) AS milli
          FROM scheduler_allocation AS held JOIN projects_pod AS pod ON pod.id = held.pod_id
         WHERE held.released_at IS NULL GROUP BY 1
      ) AS holds ON holds.workload_id = workload.id
     WHERE workload.gpu_milli_now <> coalesce(holds.milli, 0) ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class InvariantResult:
    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class _Check:
    name: str
    query: str
    describe: Callable[[tuple[Any, ...]], str]


CHECKS = (
    _Check(
        "no_device_oversold",
        OVERSOLD_DEVICES,
        lambda r: f"device {r[1]} of {r[0]} has {r[2]} thousandths allocated",
    ),
    _Check(
        "no_node_oversold",
        OVERSOLD_NODES,
        lambda r: f"{r[0]} has {r[1]} milli-CPU, {r[2]} MiB and {r[3]} pods allocated",
    ),
    _Check("allocations_match_live_pods", UNMATCHED_ALLOCATIONS, lambda r: f"pod {r[0]} is {r[1]}"),
    _Check(
        "claims_match_allocations",
        MISMATCHED_CLAIMS,
        lambda r: f"pod {r[0]} has {r[1]} devices allocated, but {r[2]} claims",
    ),
    _Check(
        "live_pods_have_placed_workloads",
        ORPHANED_PODS,
        lambda r: f"{r[0]} is {r[1]} but has a pod that is {r[2]}",
    ),
    _Check(
        "no_gang_half_started",
        HALF_STARTED_GANGS,
        lambda r: f"{r[0]} has been starting since {r[1]:%H:%M:%S}",
    ),
    _Check(
        "project_and_department_limits_hold",
        EXCEEDED_LIMITS,
        lambda r: f"{r[0]} has {r[3]} milli-GPU allocated in {r[1]}, its limit is {r[2]}",
    ),
    _Check(
        "holdings_are_counted_right",
        WRONG_GPU_TOTALS,
        lambda r: f"{r[0]} has a wrong total of {r[1]} milli-GPU",
    ),
)


def check_invariants(now: datetime) -> list[InvariantResult]:
    results = [_check_leader(now)]
    with connection.cursor() as cursor:
        for check in CHECKS:
            cursor.execute(check.query, {"half_started": now - HALF_STARTED_AFTER})
            violations = [check.describe(row) for row in cursor.fetchmany(5)]
            results.append(InvariantResult(check.name, not violations, "; ".join(violations)))
    return results


def _check_leader(now: datetime) -> InvariantResult:
    """Check that there is a leader. There cannot be two, because the lease is a single row."""
    lease = Lease.objects.filter(name=SCHEDULER_LEASE).first()
    if lease is None or not lease.holder:
        return InvariantResult("one_leader", False, "no scheduler holds the lease")
    ok = lease.expires_at > now
    late = "" if ok else f", but its lease expired {(now - lease.expires_at).total_seconds():.0f} s ago"
    return InvariantResult("one_leader", ok, f"{lease.holder} in epoch {lease.epoch}{late}")
