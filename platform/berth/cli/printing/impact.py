"""Print the predicted effects of changes to quotas and quota groups."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from berth.cli.exits import explain_error
from berth.cli.printing.output import print_section
from berth.cli.printing.text import format_number, format_value, print_message, printable
from berth.core.wording.words import format_count

if TYPE_CHECKING:
    from berth.client.models.tenants import (
        ChangedQuota,
        HiddenChanges,
        OverQuota,
        QuotaEdit,
        QuotaGroupImpact,
        QuotaImpact,
        QuotaInPool,
        ReasonChange,
        ShareChange,
        StartChange,
    )

NO_EFFECTS, HAS_EFFECTS, PREVIEW_FAILED = 0, 1, 255


@contextmanager
def report_preview_errors() -> Iterator[None]:
    """If the block raises an expected error, print it and exit with 255.

    Exit code 1 would mean that the change has effects.
    """
    try:
        yield
    except Exception as error:
        explanation = explain_error(error)
        if explanation is None:
            raise
        for line in explanation[1]:
            print_message(line)
        raise typer.Exit(PREVIEW_FAILED) from None


def preview_exit_code(impact: "QuotaImpact | QuotaGroupImpact") -> int:
    return NO_EFFECTS if impact.changes_nothing else HAS_EFFECTS


def print_impact(impact: "QuotaImpact") -> None:
    for quota in impact.quotas:
        print(printable(format_quota_line(quota)))
    for warning in impact.warnings:
        print(f"Warning: {printable(warning.message)}")
    _print_plan_changes(impact)


def print_group_impact(impact: "QuotaGroupImpact") -> None:
    before, after = (", ".join(pools) for pools in (impact.pools_before, impact.pools_after))
    print(printable(f"pools: {before} -> {after}" if before != after else f"pools: {before}: unchanged"))
    _print_indented("Quotas, in GPUs", map(_format_quota_in_pool, filter(_changes_gpu_quota, impact.quotas)))
    _print_indented("Would be over quota", map(_format_over_quota, impact.over_quota))
    _print_plan_changes(impact)


def _print_plan_changes(impact: "QuotaImpact | QuotaGroupImpact") -> None:
    _print_indented(
        "Fair shares, in GPUs", map(_format_share_change, filter(_changes_gpu_share, impact.shares))
    )
    _print_indented("Would start", map(_format_start, impact.starts))
    _print_indented("Would no longer start", map(_format_start, impact.no_longer_starting))
    _print_indented(
        "Would be evicted", (line for eviction in impact.evictions for line in _format_eviction(eviction))
    )
    _print_indented("Pending reason would change", map(_format_reason_change, impact.reasons))
    if message := _format_hidden_changes(impact.hidden):
        print(f"\nWorkloads that are not visible to you: {message}")


def quota_owner_and_pool(quota: "QuotaEdit | ChangedQuota") -> str:
    """Format a quota's owner and its pool or quota group, such as "vision in pool local"."""
    return f"{quota.name} in {'quota group' if quota.group else 'pool'} {quota.pool}"


def format_quota_line(quota: "QuotaEdit | ChangedQuota") -> str:
    """Return a line such as "vision in pool local: gpu 4 -> 8"."""
    before, after = quota.before, quota.after
    name = quota_owner_and_pool(quota)
    if after is None:
        return f"{name}: {'removed' if before is not None else 'does not exist'}"
    old_values = _flatten_keys(before or {})
    changed = [
        f"{key} {_format_amount(old_values[key]) if key in old_values else 'nothing'} "
        f"-> {_format_amount(value)}"
        for key, value in _flatten_keys(after).items()
        if key not in old_values or old_values[key] != value
    ]
    if before is None:
        values = ", ".join(
            f"{key} {_format_amount(value)}"
            for key, value in _flatten_keys(after).items()
            if value is not None
        )
        return f"{name}: new: {values}"
    return f"{name}: {', '.join(changed) or 'unchanged'}"


def _print_indented(title: str, items: Iterator[str]) -> None:
    lines = list(items)
    if lines:
        print_section(title)
        for line in lines:
            print(f"  {printable(line)}")


def _flatten_keys(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= (
            _flatten_keys(value, f"{prefix}{key}.")
            if isinstance(value, Mapping)
            else {f"{prefix}{key}": value}
        )
    return flat


def _format_amount(value: Any) -> str:
    return "unlimited" if value is None else format_value(value)


def _changes_gpu_share(share: "ShareChange") -> bool:
    return share.before.gpu != share.after.gpu


def _changes_gpu_quota(quota: "QuotaInPool") -> bool:
    return quota.before.gpu != quota.after.gpu


def _format_quota_in_pool(quota: "QuotaInPool") -> str:
    before, after = format_number(quota.before.gpu, "unlimited"), format_number(quota.after.gpu, "unlimited")
    allocated = format_number(quota.allocated.gpu)
    return f"{quota.name} in pool {quota.pool}: {before} -> {after} ({allocated} allocated)"


def _format_over_quota(over: "OverQuota") -> str:
    amount = f"{format_count(over.pods, 'pod')}, {format_count(over.gpus, 'GPU')}"
    return (
        f"{over.project}/{over.workload} in pool {over.pool}: {amount} over the quota of {over.kind} "
        f"{over.name}"
    )


def _format_share_change(share: "ShareChange") -> str:
    before, after, allocated = map(format_number, (share.before.gpu, share.after.gpu, share.allocated.gpu))
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


def _format_hidden_changes(hidden: "HiddenChanges") -> str:
    words = (("starts", "start"), ("no_longer_starting", "prevented start", "prevented starts"),
             ("evictions", "eviction"), ("shares", "changed fair share"),
             ("reasons", "changed reason"))  # fmt: skip
    return ", ".join(format_count(count, *word) for key, *word in words if (count := getattr(hidden, key)))
