"""Record each running workload's last checkpoint.

A pod reports a checkpoint by touching `.berth-checkpoint` in its workspace.
"""

import logging
import uuid
from datetime import datetime, timedelta

from berth.db.loops.crash_points import assert_no_transaction
from berth.db.loops.lease import fenced_transaction
from berth.db.queries.compiled import compiled_once
from berth.db.writes.moves import RowChange
from berth.db.writes.set_writes import write_changes
from pools.models import NodePool
from pools.runtimes.base import RuntimeFailure
from projects.models import Phase, Workload
from scheduler.loop.context import SchedulerContext
from scheduler.loop.queries import POOLS

log = logging.getLogger(__name__)

CHECK_INTERVAL = timedelta(seconds=5)
PHASES = (Phase.RUNNING, Phase.STOPPING)
RUNNING = compiled_once(
    lambda: (
        Workload.objects.filter(phase__in=PHASES, pool__isnull=False)
        .order_by("pk")
        .values_list("pk", "pool_id", "last_checkpoint_at")
    )
)


def record_checkpoints(context: SchedulerContext) -> int:
    """Record new checkpoints of running workloads. Return the number of recorded checkpoints."""
    assert_no_transaction()
    running = list(RUNNING())
    pools = {pool.pk: pool for pool in POOLS()} if running else {}
    newer: dict[uuid.UUID, datetime] = {}
    for pk, pool_id, before in running:
        if pool_id not in pools:  # the pool was deleted after the workload had left it
            continue
        saved = _fetch_checkpoint_time(pk, pools[pool_id], context)
        if saved is not None and (before is None or saved > before):
            newer[pk] = saved
    if not newer:
        return 0
    changes = [RowChange(pk, PHASES, {"last_checkpoint_at": saved}) for pk, saved in newer.items()]
    with fenced_transaction(context.held_lease):
        return len(write_changes(Workload, "phase", changes))


def _fetch_checkpoint_time(workload: uuid.UUID, pool: NodePool, context: SchedulerContext) -> datetime | None:
    try:
        return context.runtimes(pool).checkpointed_at(str(workload))
    except (RuntimeFailure, LookupError, OSError) as error:
        log.warning("the checkpoints of %s cannot be read: %s", workload, error)
        return None
