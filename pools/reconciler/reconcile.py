"""One reconciliation pass over a pool: look, end, decide, order.

All it knows between passes is in rows.

The provider is called outside transactions. What is to be done stands in rows before the call, what came of
it after: a crash in between is healed by the next pass, of this process or another.
"""

import uuid
from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from pools.engine.victims import Work
from pools.providers.base import Provider
from pools.reconciler import observe, orders, steps, terminations
from pools.reconciler.rows import Fence, Pass

MOST_STEPS = 8


def reconcile(
    pool_id: int,
    *,
    provider: Provider,
    now: datetime,
    fence: Fence = transaction.atomic,
    work_to_lose: Mapping[int, Work] | None = None,
) -> bool:
    """True when something was done. Cheap where there is nothing to do.

    `work_to_lose` by node id, so that those go first with whom least is lost.
    """
    this = Pass(provider, now, fence, uuid.uuid4().hex)
    did = observe.look(pool_id, this)
    did |= terminations.end_the_done(pool_id, this)
    for _ in range(MOST_STEPS):
        progress = orders.carry_out(pool_id, this)
        progress |= steps.take(pool_id, this, work_to_lose or {})
        if not progress:
            break
        did = True
    return did
