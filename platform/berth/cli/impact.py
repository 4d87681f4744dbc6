"""Print the effects of a quota draft."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from berth.cli.output import print_section
from berth.cli.text import number, plain, safe
from berth.core.words import counted

if TYPE_CHECKING:
    from berth.client.answers import QuotaImpact


def tell(impact: "QuotaImpact") -> None:
    for quota in impact.quotas:
        print(safe(quota_line(quota)))
    for warned in impact.warnings:
        print(f"Warning: {safe(warned.get('message', ''))}")
    _section("Fair shares, in GPUs", map(_share, filter(_moves_gpus, impact.shares)))
    _section("Would start", map(_start, impact.starts))
    _section("Would not start any more", map(_start, impact.no_longer_start))
    _section("Would give way", (line for gone in impact.evictions for line in _eviction(gone)))
    _section("Would wait for another reason", map(_reason, impact.reasons))
    if told := _unseen(impact.unseen):
        print(f"\nOf work that you may not see: {told}")


def quota_line(quota: Mapping[str, Any]) -> str:
    """vision on local: gpu 4 -> 8."""
    before, after = quota.get("before"), quota.get("after")
    name = f"{quota.get('name')} on {quota.get('pool')}"
    if after is None:
        return f"{name}: {'removed' if before is not None else 'there is none, and will be none'}"
    was = _flat(before or {})
    changed = [
        f"{key} {_said(was[key]) if key in was else 'nothing'} -> {_said(value)}"
        for key, value in _flat(after).items()
        if key not in was or was[key] != value
    ]
    if before is None:
        told = ", ".join(f"{key} {_said(value)}" for key, value in _flat(after).items() if value is not None)
        return f"{name}: new: {told}"
    return f"{name}: {', '.join(changed) or 'stays as it is'}"


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
    before, after, held = (number(share[key].get("gpu")) for key in ("before", "after", "allocated"))
    return f"{share['name']} on {share['pool']}: {before} -> {after} (would hold {held})"


def _start(entry: Mapping[str, Any]) -> str:
    when = "" if entry.get("at_once", True) else ", as soon as others have stopped"
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


def _unseen(unseen: Mapping[str, Any]) -> str:
    words = (("starts", "start"), ("no_longer_start", "start less", "starts less"),
             ("evictions", "eviction"), ("shares", "changed fair share"),
             ("reasons", "changed reason"))  # fmt: skip
    return ", ".join(counted(unseen[key], *word) for key, *word in words if unseen.get(key))
