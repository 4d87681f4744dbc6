"""Geometry of bars, which templates draw as SVG."""

from dataclasses import dataclass

from berth.core.values.amounts import MILLI
from berth.server.web.numbers import thousandths

WIDTH = 1000
TICKS_MAX = 5  # maximum number of intervals between axis labels
BREAK = 20  # width of the gap in a bar that exceeds the scale, and of the piece after the gap


@dataclass(frozen=True, slots=True)
class BarPart:
    x: int
    width: int
    kind: str  # used | over | reserved | reserved-over | requested | running | failed | cancelled | hue-N


@dataclass(frozen=True, slots=True)
class AxisLabel:
    """Label on the axis below bars. `position` is a percentage of the axis length."""

    position: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    parts: tuple[BarPart, ...]
    quota: int | None = None  # position of the quota mark, or None if the quota is unlimited or missing
    share: int | None = None
    label: str = ""
    continues: bool = False  # True if the bar has a gap near its end because the amount exceeds the scale


def quota_bar(
    *,
    allocated: int,
    quota: int | None,
    share: int | None,
    requested: int,
    scale: int,
    label: str,
    reserved: int = 0,
    over: int | None = None,
) -> Bar:
    """Return a bar of allocated, reserved and requested GPUs, with marks at quota and fair share.

    `over` is the number of GPUs over quota, by default those above `quota`. If the requested GPUs do not fit,
    the bar has a break near its end.
    """
    if over is None:
        over = 0 if quota is None else max(0, allocated + reserved - quota)
    in_quota = allocated + reserved - over
    used, parts, position = min(allocated, in_quota), [], 0
    for amount, kind in (
        (used, "used"),
        (allocated - used, "over"),
        (in_quota - used, "reserved"),
        (allocated + reserved - in_quota - (allocated - used), "reserved-over"),
        (requested, "requested"),
    ):
        end = _x(position + amount, scale)
        start = _x(position, scale)
        if end > start:
            parts.append(BarPart(start, end - start, kind))
        position += amount
    continues = position > scale > 0 and parts[-1].kind == "requested" and parts[-1].width > 2 * BREAK
    if continues:
        start = parts.pop().x
        parts += [
            BarPart(start, WIDTH - 2 * BREAK - start, "requested"),
            BarPart(WIDTH - BREAK, BREAK, "requested"),
        ]
    return Bar(
        tuple(parts),
        quota=None if not quota else _x(quota, scale),
        share=None if share is None else _x(share, scale),
        label=label,
        continues=continues,
    )


def bar_scale(longest: int) -> int:
    """Return a scale with room for pending GPUs beyond the largest amount.

    Its length is chosen so that there is a label at the end.
    """
    needed = longest * 5 // 4
    step = _tick_step(needed)
    return -(-needed // step) * step


def tight_bar_scale(longest: int) -> int:
    """Return a scale that ends at the first label at or after the largest amount."""
    step = _tick_step(longest)
    return -(-longest // step) * step


def gpu_ticks(scale: int) -> list[AxisLabel]:
    """Return up to six labels in whole GPUs for bars whose full width is `scale` milli-GPU."""
    if scale <= 0:
        return []
    return [
        AxisLabel(round(100 * at / scale, 2), thousandths(at))
        for at in range(0, scale + 1, _tick_step(scale))
    ]


def _tick_step(scale: int) -> int:
    """Return the distance between labels in milli-GPU, which is always a whole number of GPUs."""
    step = MILLI
    while scale > TICKS_MAX * step:
        step *= 2
    return step


def stacked_bar(amounts: list[tuple[int, str]], total: int, label: str) -> Bar:
    """Return a bar that shows amounts side by side on a track of length `total`."""
    parts, at = [], 0
    for amount, kind in amounts:
        start, end = _x(at, total), _x(at + amount, total)
        if end > start:
            parts.append(BarPart(start, end - start, kind))
        at += amount
    return Bar(tuple(parts), label=label)


def _x(amount: int, scale: int) -> int:
    return min(WIDTH, round(WIDTH * amount / scale)) if scale > 0 else 0
