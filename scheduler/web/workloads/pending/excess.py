"""Bar of a request that exceeds a limit, a quota or a fair share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from berth.server.web.charts.bars import Bar, quota_bar
from scheduler.engine.explain.reason_detail import BOUNDED, bound_name
from scheduler.engine.explain.reasons import convert_units


@dataclass(frozen=True, slots=True)
class Excess:
    """Amounts of a pending reason: what the queue has, what the workload requests, and the exceeded bound.

    The texts contain units, such as "fair share 6" for the bound. The allocated amount includes workloads
    that are about to start.
    """

    bar: Bar
    allocated: str
    requested: str
    bound: str
    is_share: bool  # True if the bound is the fair share


def find_excess(reason: str, numbers: Mapping[str, Any]) -> Excess | None:
    """Return the excess that a pending reason is about, or None if any of its amounts is unknown."""
    amounts = [
        amount for key in ("allocated", "requested", "bound") if isinstance(amount := numbers.get(key), int)
    ]
    if reason not in BOUNDED or "behind" in numbers or len(amounts) < 3:
        return None
    allocated, requested, bound = amounts
    name = bound_name(reason, numbers)
    is_share = name == "fair share"
    texts = [convert_units("requested", each, numbers) for each in (allocated, requested, bound)]
    parts = f"{texts[0]} allocated", f"{texts[1]} requested", f"{name} {texts[2]}"
    bar = quota_bar(
        allocated=allocated,
        quota=None if is_share else bound,
        share=bound if is_share else None,
        requested=requested,
        scale=max(allocated + requested, bound),
        label=", ".join(parts),
        over=0,
    )
    return Excess(bar, *parts, is_share)
