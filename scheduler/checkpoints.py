"""Here we learn when running work was last saved: what was done since then is what an eviction would lose.

The convention is a file: a pod that has saved its work touches `.berth-checkpoint` in its workspace.
"""

import logging
from datetime import datetime, timedelta

from berth.db.lease import fenced
from pools.runtimes.base import RuntimeFailure
from projects.models import Phase, Workload
from scheduler.points import outside_transactions
from scheduler.post import Post

log = logging.getLogger(__name__)

EVERY = timedelta(seconds=5)


def note_checkpoints(post: Post) -> int:
    """Returns how many workloads have saved their work since the last look."""
    outside_transactions()
    newer: list[Workload] = []
    running = Workload.objects.filter(phase__in=(Phase.RUNNING, Phase.STOPPING), pool__isnull=False)
    for row in running.select_related("pool").only("pk", "pool", "last_checkpoint_at").order_by("pk"):
        saved = _saved_at(row, post)
        if saved is not None and (row.last_checkpoint_at is None or saved > row.last_checkpoint_at):
            row.last_checkpoint_at = saved
            newer.append(row)
    if newer:
        with fenced(post.held):
            for row in newer:
                Workload.objects.filter(pk=row.pk).update(last_checkpoint_at=row.last_checkpoint_at)
    return len(newer)


def _saved_at(row: Workload, post: Post) -> datetime | None:
    assert row.pool is not None
    try:
        return post.runtimes(row.pool).checkpointed_at(str(row.pk))
    except (RuntimeFailure, LookupError, OSError) as error:
        log.warning("the checkpoints of %s cannot be seen: %s", row.pk, error)
        return None
