"""One reconciliation pass over a pool.

A launch request is stored before the provider is called, and its outcome afterwards. After a crash, the next
pass in any process continues from there.
"""

import uuid
from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from pools.engine.victims import LostWork
from pools.providers.base import Provider
from pools.reconciler import launches, observe, steps, terminations
from pools.reconciler.rows import Fence, ReconcileContext, load_live_nodes, load_pool

STEPS_MAX = 8


def reconcile(
    pool_id: int,
    *,
    provider: Provider,
    now: datetime,
    fence: Fence = transaction.atomic,
    work_to_lose: Mapping[int, LostWork] | None = None,
    changed_at: datetime | None = None,
) -> bool:
    """Run one reconciliation pass over a pool.

    Return whether anything changed. `work_to_lose` maps node IDs to the work that a drain would lose. Nodes
    with the least work to lose are drained first. `changed_at` is when the provider last noticed that
    instances changed.
    """
    context = ReconcileContext(provider, now, fence, uuid.uuid4().hex, changed_at)
    pool, nodes = load_pool(pool_id), load_live_nodes(pool_id)
    has_changed = False
    if observe.is_listing_due(pool, nodes, context):
        has_changed = observe.sync_nodes(pool, context)
        # Read the row again, because listing the instances may take a while.
        pool, nodes = load_pool(pool_id), load_live_nodes(pool_id)
    if terminations.terminate_finished_nodes(pool, nodes, context):
        has_changed = True
        pool, nodes = load_pool(pool_id), load_live_nodes(pool_id)
    for _ in range(STEPS_MAX):
        progress = launches.execute_launch_request(pool, context)
        if progress:
            pool, nodes = load_pool(pool_id), load_live_nodes(pool_id)
        progress |= steps.take_step(pool, nodes, context, work_to_lose or {})
        if not progress:
            break
        has_changed = True
        pool, nodes = load_pool(pool_id), load_live_nodes(pool_id)
    return has_changed
