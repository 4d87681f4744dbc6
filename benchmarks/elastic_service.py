"""Chart how an inference service scales with its load: `python -m benchmarks.elastic_service`.

The benchmark runs Berth and sglang-router on this machine, with engines that simulate computation. It writes
the measurements to docs/elastic-service.json and the chart to docs/elastic-service.svg. With `--draw`, it
draws the chart from the stored measurements.
"""

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.decide import commit, machine
from benchmarks.setup.arguments import parser
from tests.journeys.services.service_story import run_light_load, run_load, running_service

DOCS = Path(__file__).resolve().parents[1] / "docs"
DATA, CHART = DOCS / "elastic-service.json", DOCS / "elastic-service.svg"
WIDTH, LEFT, RIGHT, TOP, PANEL, GAP = 860, 64, 20, 60, 130, 54
INK, GRID, LOAD, WAITING, ENGINES, PRESENT, TIMES = (
    "#24292f", "#d0d7de", "#0969da", "#bc4c00", "#1a7f37", "#9bd3a7", "#8250df",
)  # fmt: skip
Points = Sequence[tuple[float, float]]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--draw", action="store_true", help="Draw the chart from the stored measurements.")
    arguments = options.parse_args()
    if arguments.tiny:
        print(f"drawn: {len(chart(record_run(tiny=True)))} characters")
        return
    if not arguments.draw:
        lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in record_run().items()]
        DATA.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    CHART.write_text(chart(json.loads(DATA.read_text())))


def record_run(*, tiny: bool = False) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="berth-service-") as place,
        running_service(Path(place) / "home") as story,
    ):
        if tiny:
            run_light_load(story)
        else:
            run_load(story, quiet=10, busy=15)
        requests = sorted(story.load.requests, key=lambda request: request.sent_at)
        history = story.history()
        began = history[-1]["triggered_at"] if history else 0.0
        return {
            "machine": machine(),
            "commit": commit(),
            "failed": len(story.load.failed),
            "requests": [[round(request.sent_at, 2), round(request.seconds, 3)] for request in requests],
            "moments": [asdict(moment) for moment in story.moments],
            "history": [
                {**record, "seconds_after_the_first": round(record["triggered_at"] - began, 1)}
                for record in reversed(history)
            ],
        }


def chart(data: dict[str, Any]) -> str:
    moments, requests = data["moments"], data["requests"]
    end = moments[-1]["at"]
    height = TOP + 3 * (PANEL + GAP)
    title = f"{len(requests)} requests, {data['failed']} failed"
    font = f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" {font}>',
        f"<title>A service follows its load: {title}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-weight="600">A service follows its load: {title}</text>',
    ]
    waiting = [(moment["at"], moment["waiting"] or 0) for moment in moments]
    clients = [(moment["at"], moment["clients"]) for moment in moments]
    parts += draw_panel(0, end, 13, [("clients", LOAD, clients), ("waiting requests", WAITING, waiting)])
    present = [(moment["at"], moment["engines"]) for moment in moments]
    active = [(moment["at"], moment["active"]) for moment in moments]
    parts += draw_panel(
        1, end, 5, [("running engines", PRESENT, present), ("serving engines", ENGINES, active)]
    )
    slowest = max(seconds for _, seconds in requests)
    parts += draw_panel(2, end, slowest * 1.1, [("response time in seconds", TIMES, ())])
    parts += draw_dots(2, end, slowest * 1.1, requests)
    return "\n".join([*parts, "</svg>", ""])


def draw_panel(
    place: int, end: float, most: float, lines: Sequence[tuple[str, str, Points]]
) -> Iterable[str]:
    """Yield the SVG elements of one panel: axes, labels and step lines."""
    top = TOP + place * (PANEL + GAP)
    yield f'<path d="M{LEFT} {top}V{top + PANEL}H{WIDTH - RIGHT}" fill="none" stroke="{GRID}"/>'
    for mark in axis_marks(most):
        y = y_position(place, mark, most)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="{GRID}" stroke-width="0.5"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{mark:g}</text>'
    for mark in range(0, int(end) + 1, 10):
        x = x_position(mark, end)
        yield f'<text x="{x}" y="{top + PANEL + 16}" text-anchor="middle">{mark} s</text>'
    for number, (name, colour, points) in enumerate(lines):
        yield f'<text x="{LEFT + 10 + 170 * number}" y="{top - 10}" fill="{colour}">{name}</text>'
        if points:
            line = draw_steps(place, end, most, points)
            yield f'<path d="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'


def draw_dots(place: int, end: float, most: float, requests: Iterable[tuple[float, float]]) -> Iterable[str]:
    for at, seconds in requests:
        x, y = x_position(at, end), y_position(place, seconds, most)
        yield f'<circle cx="{x}" cy="{y}" r="1.6" fill="{TIMES}" fill-opacity="0.55"/>'


def draw_steps(place: int, end: float, most: float, points: Points) -> str:
    parts = [f"M{x_position(points[0][0], end)} {y_position(place, points[0][1], most)}"]
    for at, value in points[1:]:
        parts.append(f"H{x_position(at, end)}V{y_position(place, value, most)}")
    return "".join(parts)


def axis_marks(most: float) -> list[float]:
    step = next(step for step in (0.5, 1, 2, 4, 5, 10, 20, 50, 100) if most / step <= 6)
    return [step * number for number in range(int(most / step) + 1)]


def x_position(seconds: float, end: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * seconds / end, 1)


def y_position(place: int, value: float, most: float) -> float:
    return round(TOP + place * (PANEL + GAP) + PANEL * (1 - value / most), 1)


if __name__ == "__main__":
    main()
