"""Describe when a pending workload may burst to its last pool and what bursting costs."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from berth.core.wording.words import format_gpus
from pools.costs import current_price
from pools.models import NodePool
from projects.models import Workload


def describe_bursting(workload: Workload, now: datetime) -> str:
    """Return when the workload may use its last pool and what its GPUs cost there, as a sentence.

    Return an empty string if it may use all of its pools now.
    """
    document: Mapping[str, Any] = workload.spec
    seconds = document.get("burst_after")
    if seconds is None or document["pools"][-1] not in workload.pools or len(workload.pools) < 2:
        return ""
    at = workload.pending_since + timedelta(seconds=seconds)
    pool = NodePool.objects.filter(name=document["pools"][-1]).first()
    if at <= now or pool is None:
        return ""
    sentence = f"From {at:%Y-%m-%d %H:%M:%S} UTC, the workload may also start in the pool {pool}"
    price = current_price(pool)
    if price is not None and workload.gpu_milli_min:
        cost = price * workload.gpu_milli_min / 1000
        sentence += f", where {format_gpus(workload.gpu_milli_min)} cost {cost:.2f} per hour"
    return f"{sentence}."
