"""Read the 2023 Alibaba GPU trace (openb).

The jobs file has the columns `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,...,creation_time,
deletion_time,scheduled_time` (times in seconds). The nodes file has the columns
`sn,cpu_milli,memory_mib,gpu,model`. The trace has no tenants, so all jobs belong to one project without a
quota.
"""

from collections.abc import Iterable

from berth.core.values.amounts import MILLI, UNLIMITED
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
from scheduler.simulator.replay.rows import Row, parse_integer, parse_text, trace_error, with_line_numbers
from scheduler.simulator.replay.trace import Trace

HEADER = frozenset({"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time"})
POOL, TENANT = "default", "openb"


def read_trace(pods: Iterable[Row], nodes: Iterable[Row]) -> Trace:
    arrivals = sorted(
        (_parse_workload(*row) for row in with_line_numbers(pods)), key=lambda w: (w.submitted, w.name)
    )
    pool_quotas = {POOL: PoolQuota(UNLIMITED)}
    cluster = Snapshot(
        now=arrivals[0].submitted if arrivals else 0,
        pools=(Pool(POOL),),
        nodes=tuple(_parse_node(line, row) for line, row in with_line_numbers(nodes)),
        queues=(
            Queue(f"{TENANT} (all)", None, 0, pool_quotas),
            Queue(TENANT, f"{TENANT} (all)", 0, pool_quotas),
        ),
        workloads=(),
    )
    return Trace("openb", cluster, tuple(arrivals))


def _parse_node(line: int, row: Row) -> Node:
    return Node(
        parse_text(line, row, "sn"),
        POOL,
        parse_integer(line, row, "gpu"),
        (row.get("model") or "").strip(),
        cpu=parse_integer(line, row, "cpu_milli"),
        memory_mib=parse_integer(line, row, "memory_mib"),
    )


def _parse_workload(line: int, row: Row) -> Workload:
    created = parse_integer(line, row, "creation_time")
    started = parse_integer(line, row, "scheduled_time", default=created)
    ended = parse_integer(line, row, "deletion_time", default=started + 1)
    name = parse_text(line, row, "name")
    return Workload(
        name=name,
        project=TENANT,
        tree=RoleGroup(name, (_parse_role(line, row),), 1),
        pools=(POOL,),
        submitted=created,
        runtime_seconds=max(1, ended - max(created, started)),
    )


def _parse_role(line: int, row: Row) -> Role:
    count, milli = parse_integer(line, row, "num_gpu"), parse_integer(line, row, "gpu_milli", default=0)
    if milli > MILLI or (count and not milli):
        raise trace_error(line, "gpu_milli", "is not a valid GPU fraction", str(milli), f"1 to {MILLI}")
    cpu, memory = parse_integer(line, row, "cpu_milli"), parse_integer(line, row, "memory_mib")
    models = tuple(filter(None, (row.get("gpu_spec") or "").strip().split("|")))
    request = Request(milli if count else 0, count, 0, cpu, memory, cpu, memory)
    return Role("pod", 1, 1, request, gpu_models=models if count else ())
