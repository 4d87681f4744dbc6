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
    """Render numbers of a blocker, such as "requested 4 GPUs, free 0 GPUs". They are in thousandths."""
    resource = str(numbers.get("resource") or "gpu")
    order = [name for name in NAMES if name in numbers]
    order += sorted(name for name in numbers if name not in NAMES and name not in UNSAID)
    return ", ".join(
        f"{NAMES.get(name, safe(name).replace('_', ' '))} {_spoken(name, numbers[name], resource)}"
        for name in order
    )


def expected_line(at: datetime | None, because: str) -> str:
    """The expected start as a sentence, or an empty string."""
    if at is not None:
        return f"Expected start: {local(at)}" + (f", {because}." if because else ".")
    return f"Expected start unknown: {because}." if because else ""


def queue_lines(queue: Any) -> Iterator[str]:
    """Yield lines about the project and its department, as of the last cycle."""
    for kind in ("project", "department"):
        standing = (queue or {}).get(kind)
        if isinstance(standing, dict):
            told = ", ".join(
                f"{'fair share' if name == 'share' else name} {_gpus(standing[name])}"
                for name in STANDINGS
                if name in standing
            )
            yield f"{kind} {standing.get('name')}: {told} (GPUs in {standing.get('pool')})"
            for line in _how(standing):
                yield f"  {line}"


def _how(standing: Mapping[str, Any]) -> Iterator[str]:
    """Yield the explanation of the fair share: of GPUs, or of the requested resources without GPUs."""
    told = standing.get("how") or {}
    asked = standing.get("requested") or {}
    chosen = ["gpu"] if asked.get("gpu") else [name for name in told if asked.get(name)]
    for resource in chosen or ["gpu"]:
        yield from map(str, told.get(resource) or ())


def _spoken(name: str, value: Any, resource: str) -> str:
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
    _section("Would be evicted", (line for gone in impact.evictions for line in _eviction(gone)))
    _section("Pending reason would change", map(_reason, impact.reasons))
    if message := _hidden(impact.hidden):
        print(f"\nWorkloads that are not visible to you: {message}")


def quota_line(quota: Mapping[str, Any]) -> str:
    """vision on local: gpu 4 -> 8."""
    before, after = quota.get("before"), quota.get("after")
    name = f"{quota.get('name')} on {quota.get('pool')}"
    if after is None:
        return f"{name}: {'removed' if before is not None else 'does not exist'}"
    was = _flat(before or {})
    changed = [
        f"{key} {_said(was[key]) if key in was else 'nothing'} -> {_said(value)}"
        for key, value in _flat(after).items()
        if key not in was or was[key] != value
    ]
    if before is None:
        told = ", ".join(f"{key} {_said(value)}" for key, value in _flat(after).items() if value is not None)
        return f"{name}: new: {told}"
    return f"{name}: {', '.join(changed) or 'unchanged'}"


def _section(title: str, lines: Iterator[str]) -> None:
    found = list(lines)
    if found:
        print_section(title)
        for line in found:
            print(f"  {safe(line)}")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _said(value: Any) -> str:
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


def _eviction(gone: Mapping[str, Any]) -> Iterator[str]:
    yield f"{gone.get('kind')}: {gone.get('summary')}"
    for line in gone.get("lines") or ():
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


def print_shares(stories: Iterable["ShareTrace"]) -> None:
    for told in stories:
        for chapter in told.trace:
            of = chapter.queue if chapter.queue == told.pool else f"{chapter.queue} on {told.pool}"
            print_section(safe(f"{chapter.name}: {UNITS[chapter.resource]} of {of}"))
            for line in chapter.explanation:
                print(f"  {safe(line)}")
