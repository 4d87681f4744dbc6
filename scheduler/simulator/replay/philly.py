"""Read the Philly trace.

The jobs file has the columns `timestamp,duration,num_gpus,gpu_time,cluster`. A second file (`vc,node_num`)
contains the quota of each virtual cluster, in nodes. Only a quarter of the nodes are used, so that six weeks
of jobs fill the cluster.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from functools import cache

from berth.core.values.amounts import MILLI, Bounds
from scheduler.engine.model import (
    Node,
    Pool,
    PoolQuota,
    Queue,
    Request,
    Role,
    RoleGroup,
    Snapshot,
    Workload,
)
from scheduler.simulator.replay.rows import Row, parse_integer, parse_text, parse_time, with_line_numbers
from scheduler.simulator.replay.trace import Trace

HEADER = frozenset({"timestamp", "duration", "num_gpus", "cluster"})
POOL, DEPARTMENT = "default", "philly"
GPUS_PER_NODE, SCALE_DOWN_FACTOR = 8, 4
SIX_WEEKS = (
    int(datetime(2017, 10, 2, tzinfo=timezone.utc).timestamp()),
    int(datetime(2017, 11, 13, tzinfo=timezone.utc).timestamp()),
)


def read_cluster_sizes(rows: Iterable[Row]) -> Mapping[str, int]:
    """Return a quarter of each virtual cluster's node count, but at least 1."""
    return {
        parse_text(line, row, "vc"): max(1, parse_integer(line, row, "node_num", 1) // SCALE_DOWN_FACTOR)
        for line, row in with_line_numbers(rows)
    }


def read_trace(
    jobs: Iterable[Row], cluster_sizes: Mapping[str, int], window: tuple[int, int] | None = SIX_WEEKS
) -> Trace:
    """Return the trace of the jobs that were submitted within the window.

    Jobs of virtual clusters with an unknown number of nodes are omitted.
    """
    arrivals = []
    for line, row in with_line_numbers(jobs):
        at = parse_time(line, row, "timestamp")
        if parse_text(line, row, "cluster") in cluster_sizes and (
            window is None or window[0] <= at < window[1]
        ):
            arrivals.append(_parse_workload(line, row, at))
    # The sort is stable: jobs submitted in the same second stay in file order.
    arrivals.sort(key=lambda workload: workload.submitted)
    count = sum(cluster_sizes.values())
    cluster = Snapshot(
        now=arrivals[0].submitted if arrivals else 0,
        pools=(Pool(POOL),),
        nodes=tuple(Node(f"n{i:04}", POOL, GPUS_PER_NODE, cpu=GPUS_PER_NODE * MILLI) for i in range(count)),
        queues=(
            _build_queue(DEPARTMENT, None, count * GPUS_PER_NODE),
            *(
                _build_queue(vc, DEPARTMENT, nodes * GPUS_PER_NODE)
                for vc, nodes in sorted(cluster_sizes.items())
            ),
        ),
        workloads=(),
    )
    return Trace("philly", cluster, tuple(arrivals))


def _build_queue(name: str, parent: str | None, gpus: int) -> Queue:
    return Queue(name, parent, 0, {POOL: PoolQuota(Bounds(gpus * MILLI, None, None))})


def _parse_workload(line: int, row: Row, at: int) -> Workload:
    return Workload(
        name=f"job-{line:06}",
        project=row["cluster"].strip(),
        tree=_build_gang(parse_integer(line, row, "num_gpus", 1)),
        pools=(POOL,),
        submitted=at,
        runtime_seconds=max(1, parse_integer(line, row, "duration")),
    )


@cache
def _build_gang(gpus: int) -> RoleGroup:
    """Return a gang of whole nodes, plus part of one node for the job's remaining GPUs."""
    nodes, remaining_gpus = divmod(gpus, GPUS_PER_NODE)
    roles = [_build_role("node", nodes, GPUS_PER_NODE)] if nodes else []
    roles += [_build_role("rest", 1, remaining_gpus)] if remaining_gpus else []
    return RoleGroup("gang", tuple(roles), len(roles))


def _build_role(name: str, count: int, gpus: int) -> Role:
    return Role(name, count, count, Request(gpu=MILLI, devices=gpus))
