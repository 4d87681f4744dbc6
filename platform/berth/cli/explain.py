"""Print explanations: blockers, fair shares, and the effects of quota changes."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from berth.cli.output import print_section
from berth.cli.text import local, number, plain, safe
from berth.core.words import UNSAID, amount, counted

if TYPE_CHECKING:
    from berth.client.models.tenants import QuotaImpact, ShareTrace

NAMES = {
    "queue": "queue", "requested": "requested", "allocated": "allocated", "bound": "limit", "quota": "quota",
    "share": "fair share", "free": "free", "biggest_block": "largest free block", "missing": "missing",
    "most": "at most", "reclaimable": "reclaimable", "protected": "protected",
}  # fmt: skip
AMOUNTS = frozenset(NAMES) - {"queue"}
STANDINGS = ("quota", "share", "allocated", "requested", "limit")


def blocker_numbers(numbers: Mapping[str, Any]) -> str:
    """Format a blocker's numbers, which are in thousandths, such as "requested 4 GPUs, free 0 GPUs"."""
    resource = str(numbers.get("resource") or "gpu")
    order = [name for name in NAMES if name in numbers]
    order += sorted(name for name in numbers if name not in NAMES and name not in UNSAID)
    return ", ".join(
        f"{NAMES.get(name, safe(name).replace('_', ' '))} {_amount_text(name, numbers[name], resource)}"
        for name in order
    )


def expected_line(at: datetime | None, because: str) -> str:
    """Return the expected start as a sentence, or an empty string."""
    if at is not None:
        return f"Expected start: {local(at)}" + (f", {because}." if because else ".")
    return f"Expected start unknown: {because}." if because else ""


def queue_lines(queue: Any) -> Iterator[str]:
    """Yield lines about the standing of the project and its department in the last cycle."""
    for kind in ("project", "department"):
        standing = (queue or {}).get(kind)
        if isinstance(standing, dict):
            amounts = ", ".join(
                f"{'fair share' if name == 'share' else name} {_gpus(standing[name])}"
                for name in STANDINGS
                if name in standing
            )
            yield f"{kind} {standing.get('name')}: {amounts} (GPUs in {standing.get('pool')})"
            for line in _share_explanation(standing):
                yield f"  {line}"


def _share_explanation(standing: Mapping[str, Any]) -> Iterator[str]:
    """Yield the explanation of the GPU fair share, or of other resources if no GPUs are requested."""
    explanations = standing.get("how") or {}
    requested = standing.get("requested") or {}
    chosen = ["gpu"] if requested.get("gpu") else [name for name in explanations if requested.get(name)]
    for resource in chosen or ["gpu"]:
        yield from map(str, explanations.get(resource) or ())


def _amount_text(name: str, value: Any, resource: str) -> str:
    if name not in AMOUNTS or not isinstance(value, int | float):
        return plain(value)
    return amount(resource, int(value))


def _gpus(amounts: Any) -> str:
    if not isinstance(amounts, dict):
        return "-"
    value = amounts.get("gpu")
    return "unlimited" if value is None else number(value)


def print_impact(impact: "QuotaImpact") -> None:
    for quota in impact.quotas:
        print(safe(quota_line(quota)))
    for warned in impact.warnings:
        print(f"Warning: {safe(warned.get('message', ''))}")
    _section("Fair shares, in GPUs", map(_share, filter(_moves_gpus, impact.shares)))
    _section("Would start", map(_start, impact.starts))
    _section("Would no longer start", map(_start, impact.no_longer_starting))
    _section("Would be evicted", (line for eviction in impact.evictions for line in _eviction(eviction)))
    _section("Pending reason would change", map(_reason, impact.reasons))
    if message := _hidden(impact.hidden):
        print(f"\nWorkloads that are not visible to you: {message}")


def quota_line(quota: Mapping[str, Any]) -> str:
    """Return a line such as "vision on local: gpu 4 -> 8"."""
    before, after = quota.get("before"), quota.get("after")
    name = f"{quota.get('name')} on {quota.get('pool')}"
    if after is None:
        return f"{name}: {'removed' if before is not None else 'does not exist'}"
    was = _flat(before or {})
    changed = [
        f"{key} {_amount(was[key]) if key in was else 'nothing'} -> {_amount(value)}"
        for key, value in _flat(after).items()
        if key not in was or was[key] != value
    ]
    if before is None:
        values = ", ".join(
            f"{key} {_amount(value)}" for key, value in _flat(after).items() if value is not None
        )
        return f"{name}: new: {values}"
    return f"{name}: {', '.join(changed) or 'unchanged'}"


def _section(title: str, items: Iterator[str]) -> None:
    lines = list(items)
    if lines:
        print_section(title)
        for line in lines:
            print(f"  {safe(line)}")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _amount(value: Any) -> str:
    return "unlimited" if value is None else plain(value)


def _moves_gpus(share: Mapping[str, Any]) -> bool:
    return bool(share["before"].get("gpu") != share["after"].get("gpu"))


def _share(share: Mapping[str, Any]) -> str:
    before, after, allocated = (number(share[key].get("gpu")) for key in ("before", "after", "allocated"))
    return f"{share['name']} on {share['pool']}: {before} -> {after} ({allocated} allocated)"


def _start(entry: Mapping[str, Any]) -> str:
    when = "" if entry.get("at_once", True) else ", once evicted workloads have stopped"
    gpus = counted(entry.get("gpus") or 0, "GPU")
    return f"{entry['project']}/{entry['workload']} on {entry['pool']}, {gpus}{when}"


def _eviction(eviction: Mapping[str, Any]) -> Iterator[str]:
    yield f"{eviction.get('kind')}: {eviction.get('summary')}"
    for line in eviction.get("lines") or ():
        yield f"  {line}"


def _reason(entry: Mapping[str, Any]) -> str:
    return (
        f"{entry['project']}/{entry['workload']}: {entry['before']} -> {entry['after']}: {entry['message']}"
    )


def _hidden(hidden: Mapping[str, Any]) -> str:
    words = (("starts", "start"), ("no_longer_starting", "lost start", "lost starts"),
             ("evictions", "eviction"), ("shares", "changed fair share"),
             ("reasons", "changed reason"))  # fmt: skip
    return ", ".join(counted(hidden[key], *word) for key, *word in words if hidden.get(key))


UNITS = {"gpu": "GPUs", "cpu": "CPUs", "memory_mib": "memory"}


def print_shares(traces: Iterable["ShareTrace"]) -> None:
    for trace in traces:
        for chapter in trace.trace:
            of = chapter.queue if chapter.queue == trace.pool else f"{chapter.queue} on {trace.pool}"
            print_section(safe(f"{chapter.name}: {UNITS[chapter.resource]} of {of}"))
            for line in chapter.explanation:
                print(f"  {safe(line)}")
