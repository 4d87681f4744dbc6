"""SVG plots of a replay: allocations and pending workloads."""

from collections.abc import Mapping, Sequence
from html import escape

from scheduler.simulator.replay.records import Curve, Records, integrate

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LEGEND = 960, 360, 56, 40, 36, 170
COLUMNS = 400
INK, FAINT = "#334155", "#cbd5e1"
TICKS = 4


def draw_plots(records: Records, until: int) -> Mapping[str, str]:
    """Return SVG documents, keyed by file name."""
    begin, end = records.trace.start_time, max(until, records.trace.start_time + 1)
    allocations = {name: account.allocated for name, account in records.accounts.items() if account.allocated}
    return {
        "allocation.svg": draw_stacked_areas(
            "Allocated GPUs by project", allocations, begin, end, records.trace.gpus
        ),
        "queue.svg": draw_stacked_areas(
            "Pending workloads", {"pending": records.pending_count_curve()}, begin, end
        ),
    }


def draw_stacked_areas(
    title: str, curves: Mapping[str, Curve], begin: int, end: int, line: float | None = None
) -> str:
    """Return an SVG with stacked areas and, if `line` is set, the capacity as a dashed line."""
    columns = {name: sample_curve(curve, begin, end) for name, curve in curves.items()}
    top = max([1.0, line or 0.0, *map(sum, zip(*columns.values(), strict=True))])
    below = [0.0] * COLUMNS
    parts = [_draw_frame(title, top, (end - begin) / 86_400)]
    for number, (name, heights) in enumerate(columns.items()):
        above = [low + high for low, high in zip(below, heights, strict=True)]
        colour = f"hsl({number * 137.5 % 360:.0f} 55% {48 + 14 * (number % 2)}%)"
        parts.append(f'<polygon fill="{colour}" points="{_outline_points(below, above, top)}"/>')
        y = TOP + 18 * number
        if y < HEIGHT - BOTTOM:
            parts.append(f'<rect x="{WIDTH - LEGEND + 12}" y="{y}" width="10" height="10" fill="{colour}"/>')
            parts.append(_text_element(WIDTH - LEGEND + 28, y + 9, name[:20]))
        below = above
    if line is not None:
        y_line = _y_position(line, top)
        parts.append(f'<path d="M{LEFT} {y_line}H{WIDTH - LEGEND}" stroke="{INK}" stroke-dasharray="4 4"/>')
    return "\n".join([*parts, "</svg>\n"])


def sample_curve(curve: Curve, begin: int, end: int) -> Sequence[float]:
    """Return a step function's mean value in each column."""
    width, means, at = (end - begin) / COLUMNS, [0.0] * COLUMNS, 0
    for column in range(COLUMNS):
        since, until = begin + column * width, begin + (column + 1) * width
        while at + 1 < len(curve) and curve[at + 1][0] <= since:
            at += 1
        last = at
        while last + 1 < len(curve) and curve[last + 1][0] < until:
            last += 1
        means[column] = integrate(curve[at : last + 1], since, until) / width
    return means


def _draw_frame(title: str, top: float, days: float) -> str:
    right, bottom = WIDTH - LEGEND, HEIGHT - BOTTOM
    drawing = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    parts = [
        f'<svg {drawing} font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        _text_element(LEFT, 22, title, weight="600"),
    ]
    for tick in range(TICKS + 1):
        value = top * tick / TICKS
        y = _y_position(value, top)
        parts.append(f'<path d="M{LEFT} {y}H{right}" stroke="{FAINT}"/>')
        parts.append(_text_element(LEFT - 6, y + 4, f"{value:.0f}", anchor="end"))
        x = LEFT + (right - LEFT) * tick / TICKS
        parts.append(_text_element(x, bottom + 18, f"day {days * tick / TICKS:.3g}", anchor="middle"))
    return "\n".join(parts)


def _outline_points(below: Sequence[float], above: Sequence[float], top: float) -> str:
    step = (WIDTH - LEGEND - LEFT) / (COLUMNS - 1)
    forward = [f"{LEFT + i * step:.1f},{_y_position(value, top)}" for i, value in enumerate(above)]
    backward = [f"{LEFT + i * step:.1f},{_y_position(value, top)}" for i, value in enumerate(below)]
    return " ".join(forward + backward[::-1])


def _y_position(value: float, top: float) -> float:
    return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top, 1)


def _text_element(x: float, y: float, words: str, anchor: str = "start", weight: str = "400") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{INK}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(words)}</text>"
    )
