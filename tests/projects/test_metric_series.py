"""Tests for parsing metric reports and storing a bounded number of points."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import berth
from berth.server.web.charts.lines import line_chart
from projects.engine.metrics import COUNT_MAX, LINE_MAX, POINTS_MAX, Point, Sample, Series, parse_reports

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def reported(*lines: str) -> list[Sample]:
    return list(parse_reports("\n".join(lines).encode()))


def test_reported_numbers_are_parsed_from_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    berth.report(3, loss=0.5, **{"val/accuracy": True})
    line = capsys.readouterr().out
    assert reported("epoch 3", f"50%|####   {line}done") == [("loss", 3, 0.5), ("val/accuracy", 3, 1.0)]


def test_report_function_works_without_any_other_module(tmp_path: Path) -> None:
    (tmp_path / "berth.py").write_text(Path(str(berth.__file__)).read_text())
    program = (
        "import berth, sys; berth.report(1, loss=2); print(sorted(sys.modules.keys() & {'typing', 'httpx'}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; {program}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == 'berth-report {"step": 1, "loss": 2.0}\n[]\n'


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[1]", "null", '{"loss": 1}', '{"step": -1, "loss": 1}', '{"step": 1.5, "loss": 1}',
        '{"step": true, "loss": 1}', '{"step": 1e300, "loss": 1}', '{"step": 1, "loss": "1"}',
        '{"step": 1, "loss": null}', '{"step": 1, "loss": true}', '{"step": 1, "<b>": 1}',
        '{"step": 1, "' + "a" * 65 + '": 1}', '{"step": 1, "loss": ' + "9" * 5000 + "}", "[" * 4000,
        '{"step": 1, "loss": 1}' + " " * 5000, '{"step": 1, "l\\u0000": 1}',
    ],
)  # fmt: skip
def test_malformed_metric_report_is_skipped(text: str) -> None:
    assert reported(f"berth-report {text}", 'berth-report {"step": 2, "loss": 1}') == [("loss", 2, 1.0)]


def test_non_finite_values_are_counted_but_not_stored() -> None:
    series = Series()
    for _, step, value in reported(
        'berth-report {"step": 1, "loss": NaN}', 'berth-report {"step": 2, "loss": -Infinity}',
        'berth-report {"step": 3, "loss": 1' + "0" * 400 + "}",
    ):  # fmt: skip
        series.add(step, value)
    assert (series.not_finite, series.points, series.last, series.lowest) == (3, [], None, None)


def test_non_finite_value_count_fits_its_column() -> None:
    series = Series(not_finite=COUNT_MAX)
    series.add(1, math.nan)
    assert series.not_finite == COUNT_MAX == 2**31 - 1


def test_line_that_repeats_the_report_prefix_is_scanned_once() -> None:
    scanned: list[int] = []

    class Log(bytes):
        def find(self, sought: Any, start: Any = 0, end: Any = None) -> int:
            at = super().find(sought, start, end)
            scanned.append((min(len(self), end or len(self)) if at < 0 else at) - start)
            return at

    assert list(parse_reports(Log(b"berth-report " * 1000))) == []
    assert max(scanned) <= LINE_MAX + 1


@given(st.lists(st.tuples(st.integers(0, 2**53), FINITE), max_size=50), st.integers(1, 50))
def test_samples_and_chart_of_arbitrary_metric_reports_stay_within_bounds(
    reports: list[tuple[int, float]], count: int
) -> None:
    series = Series()
    for step, value in reports:
        series.add(step, value)
    steps = [point.step for point in series.points]
    assert steps == sorted(set(steps))
    assert len(series.points) <= POINTS_MAX
    sample = series.downsample(count)
    assert len(sample) <= count and {point.step for point in sample} <= {step for step, _ in reports}
    if reports:
        assert series.last == reports[-1]
        assert series.lowest and series.lowest.value == min(value for _, value in reports)
        chart = line_chart([("loss", "", sample)])
        numbers = [float(text) for text in chart.lines[0].path.replace("M", "").replace("L", "").split()]
        assert all(math.isfinite(number) and -0.1 <= number <= 1000.1 for number in numbers)
        assert len(chart.marks) <= 8


def test_long_series_is_sampled_evenly_and_keeps_its_first_and_last_point() -> None:
    series = Series()
    for step in range(100_000):
        series.add(step, step / 1000)
    assert POINTS_MAX / 2 <= len(series.points) <= POINTS_MAX
    assert series.points[0] == Point(0, 0.0)
    assert series.downsample(50)[-1] == Point(99_999, 99.999)
    assert all(point.value == point.step / 1000 for point in series.points)


def test_later_run_replaces_the_metric_values_of_repeated_steps() -> None:
    series = Series()
    for step, value in ((1, 1.0), (2, 0.5), (3, 0.4), (2, 0.6)):
        series.add(step, value)
    assert series.points == [(1, 1.0), (2, 0.6), (3, 0.4)]
    assert series.last == (2, 0.6)
