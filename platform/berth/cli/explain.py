"""Print blockers, fair shares, and the effects of quota changes."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from berth.cli.output import print_section
from berth.cli.text import format_time, format_value, number, safe
from berth.core.blocker_numbers import format_numbers
from berth.core.words import format_count

if TYPE_CHECKING:
    from berth.client.models.tenants import (
        ChangedQuota,
        HiddenChanges,
        QuotaEdit,
        QuotaImpact,
        ReasonChange,
        ShareChange,
        ShareTrace,
        StartChange,
    )

QUEUE_FIELDS = ("quota", "share", "allocated", "requested", "limit")


def format_blocker_numbers(numbers: Mapping[str, Any]) -> str:
    """Format a blocker's numbers in one line, as in "requested 4 GPUs, free 0"."""
    return ", ".join(f"{safe(label)} {safe(text)}" for label, text in format_numbers(numbers))


def format_expected_start(at: datetime | None, reason: str) -> str:
    """Return a sentence about the expected start, or an empty string."""
    if at is not None:
        return f"Expected start: {format_time(at)}" + (f", {reason}." if reason else ".")
    return f"Expected start unknown: {reason}." if reason else ""


def queue_lines(queue: Any) -> Iterator[str]:
    """Yield the quota, share and allocation of the project and its department in the last cycle."""
    for kind in ("project", "department"):
        status = (queue or {}).get(kind)
        if isinstance(status, dict):
            amounts = ", ".join(
                f"{'fair share' if name == 'share' else name} {_format_gpus(status[name])}"
                for name in QUEUE_FIELDS
                if name in status
            )
            yield f"{kind} {status.get('name')}: {amounts} (GPUs in {status.get('pool')})"
            for line in _share_explanation(status):
                yield f"  {line}"


def _share_explanation(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines that explain the GPU fair share, or other resources' shares if no GPU is requested."""
    explanations = status.get("how") or {}
    requested = status.get("requested") or {}
    chosen = ["gpu"] if requested.get("gpu") else [name for name in explanations if requested.get(name)]
    for resource in chosen or ["gpu"]:
        yield from map(str, explanations.get(resource) or ())


def _format_gpus(amounts: Any) -> str:
    if not isinstance(amounts, dict):
        return "-"
    value = amounts.get("gpu")
    return "unlimited" if value is None else number(value)


def print_impact(impact: "QuotaImpact") -> None:
    for quota in impact.quotas:
        print(safe(quota_line(quota)))
    for warning in impact.warnings:
        print(f"Warning: {safe(warning.message)}")
    _print_indented(
        "Fair shares, in GPUs", map(_format_share_change, filter(_changes_gpu_share, impact.shares))
    )
    _print_indented("Would start", map(_format_start, impact.starts))
    _print_indented("Would no longer start", map(_format_start, impact.no_longer_starting))
    _print_indented(
        "Would be evicted", (line for eviction in impact.evictions for line in _format_eviction(eviction))
    )
    _print_indented("Pending reason would change", map(_format_reason_change, impact.reasons))
    if message := _format_hidden(impact.hidden):
        print(f"\nWorkloads that are not visible to you: {message}")


def quota_line(quota: "QuotaEdit | ChangedQuota") -> str:
    """Return a line such as "vision in pool local: gpu 4 -> 8"."""
    before, after = quota.before, quota.after
    name = f"{quota.name} in {'quota group' if quota.group else 'pool'} {quota.pool}"
    if after is None:
        return f"{name}: {'removed' if before is not None else 'does not exist'}"
    old_values = _flatten(before or {})
    changed = [
        f"{key} {_format_amount(old_values[key]) if key in old_values else 'nothing'} "
        f"-> {_format_amount(value)}"
        for key, value in _flatten(after).items()
        if key not in old_values or old_values[key] != value
    ]
    if before is None:
        values = ", ".join(
            f"{key} {_format_amount(value)}" for key, value in _flatten(after).items() if value is not None
        )
        return f"{name}: new: {values}"
    return f"{name}: {', '.join(changed) or 'unchanged'}"


def _print_indented(title: str, items: Iterator[str]) -> None:
    lines = list(items)
    if lines:
        print_section(title)
        for line in lines:
            print(f"  {safe(line)}")


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= (
            _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
        )
    return flat


def _format_amount(value: Any) -> str:
    return "unlimited" if value is None else format_value(value)


def _changes_gpu_share(share: "ShareChange") -> bool:
    return share.before.gpu != share.after.gpu


def _format_share_change(share: "ShareChange") -> str:
    before, after, allocated = map(number, (share.before.gpu, share.after.gpu, share.allocated.gpu))
    return f"{share.name} in pool {share.pool}: {before} -> {after} ({allocated} allocated)"


def _format_start(start: "StartChange") -> str:
    when = "" if start.immediately else ", once evicted workloads have stopped"
    return f"{start.project}/{start.workload} in pool {start.pool}, {format_count(start.gpus, 'GPU')}{when}"


def _format_eviction(eviction: Mapping[str, Any]) -> Iterator[str]:
    yield f"{eviction.get('kind')}: {eviction.get('summary')}"
    for line in eviction.get("lines") or ():
        yield f"  {line}"


def _format_reason_change(change: "ReasonChange") -> str:
    return f"{change.project}/{change.workload}: {change.before} -> {change.after}: {change.message}"


def _format_hidden(hidden: "HiddenChanges") -> str:
    words = (("starts", "start"), ("no_longer_starting", "prevented start", "prevented starts"),
             ("evictions", "eviction"), ("shares", "changed fair share"),
             ("reasons", "changed reason"))  # fmt: skip
    return ", ".join(format_count(count, *word) for key, *word in words if (count := getattr(hidden, key)))


UNITS = {"gpu": "GPUs", "cpu": "CPUs", "memory_mib": "memory"}


def print_shares(traces: Iterable["ShareTrace"]) -> None:
    for trace in traces:
        for section in trace.trace:
            queue = section.queue if section.queue == trace.pool else f"{section.queue} in pool {trace.pool}"
            print_section(safe(f"{section.name}: {UNITS[section.resource]} of {queue}"))
            for line in section.explanation:
                print(f"  {safe(line)}")
