"""Tests for lists in narrow terminals and as CSV."""

import csv
import io
import itertools
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from berth.cli.commands.infrastructure import nodes, pools
from berth.cli.printing import following, output
from berth.cli.printing.columns import workload_columns
from berth.cli.printing.output import ColumnSize, FittedColumn, Output, build_table, csv_text, fit_columns
from berth.cli.printing.quota_table import quota_columns
from berth.cli.printing.text import format_short_time, utc_now
from berth.client import Unreachable
from berth.client.models.nodes import Node
from berth.client.models.pools import NodePool
from berth.client.models.tenants import Quota
from berth.client.models.workloads import Workload
from tests.cli.terminal import Terminal
from tests.client.stub_server import TIME, StubServer, page, workload

WIDE = "训练模型-大规模-実験"
POOL = {
    "name": "a-pool-with-a-long-name",
    "provider": "fake",
    "nodes_min": 1,
    "nodes_max": 400,
    "nodes_desired": 400,
    "created_at": TIME,
    "updated_at": TIME,
}
NODE = {"name": "n", "pool": "p", "state": "ready", "since": TIME, "created_at": TIME}
QUOTA = {
    "owner": {"kind": "project", "name": "a-project-with-a-rather-long-name"}, "pool": "local", "gpu": 1000,
    "limit": {"gpu": 2000}, "weight": 1, "over_quota": True, "status": None,
}  # fmt: skip
ROWS: dict[str, tuple[Any, Any]] = {
    "workloads": (
        workload_columns(utc_now()),
        [Workload.model_validate(workload(WIDE[:n], message=WIDE * 4, reason="Why")) for n in (3, 12)],
    ),
    "pools": (pools._pool_columns(), [NodePool.model_validate(POOL)]),
    "nodes": (nodes._node_columns(), [Node.model_validate(NODE)]),
    "quotas": (quota_columns(), [Quota.model_validate(QUOTA)]),
}


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("kind", ROWS)
def test_row_with_wide_characters_fits_on_one_line(kind: str, width: int) -> None:
    columns, items = ROWS[kind]
    console = Console(width=width, force_terminal=True, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(build_table(items, columns, Output.TABLE, width))
    lines = captured.get().splitlines()
    assert len(lines) == 1 + len(items)
    assert max(map(cell_len, lines)) <= width
    assert lines[0].split()[0] == columns[0].title, "the first column is never omitted"


def test_narrow_table_omits_columns_before_truncating_names() -> None:
    columns, items = ROWS["quotas"]
    column_counts = {
        width: len(build_table(items, columns, Output.TABLE, width).columns) for width in (60, 90, 200)
    }
    assert column_counts[60] < column_counts[90] < column_counts[200]
    console = Console(width=60, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(build_table(items, columns, Output.TABLE, 60))
    assert "a-project-with-a-rather-long-name" in captured.get()


def test_csv_output_escapes_formulas(terminal: Terminal) -> None:
    evil = workload("train", message='=HYPERLINK("http://x")', labels={"team": "nlp"}, pools=["a", "b"])
    output = terminal.run(
        "list", "--tasks", "-o", "csv", server=StubServer(page([evil, workload("other")]))
    ).stdout
    first, second = csv.DictReader(io.StringIO(output))
    assert (first["name"], first["gpus.requested"], first["labels.team"], first["pools"]) == (
        "train",
        "4",
        "nlp",
        "a; b",
    )
    assert first["message"] == '\'=HYPERLINK("http://x")'
    assert (first["exit_code"], first["preemptible"]) == ("", "true")
    assert (second["name"], second["labels.team"]) == ("other", "")


def test_csv_output_of_one_object_is_one_row() -> None:
    assert csv_text({"a": 1, "b": {"c": -2, "d": [{"x": 1}]}}) == "a,b.c,b.d\n1,-2,x=1\n"
    assert csv_text([]) == ""
    assert csv_text(["x", "y"]) == "value\nx\ny\n"


def test_watch_option_redraws_the_list_and_rejects_json_output(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = itertools.count()

    def sleep(_: float) -> None:
        if next(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(following, "sleep", sleep)
    server = StubServer(page([workload("one")]), page([workload("two")]), page([workload("three")]))
    done = terminal.run("list", "--tasks", "--watch", server=server)
    assert done.exit_code == 130
    assert [line.split()[0] for line in done.stdout.splitlines() if line] == [
        "NAME",
        "one",
        "NAME",
        "two",
        "NAME",
        "three",
    ]
    data = terminal.run("list", "--tasks", "--watch", "-o", "json", server=server)
    assert (data.exit_code, data.stderr) == (
        2, "berth: --watch cannot be combined with --output json. Use table or wide.\n",
    )  # fmt: skip


def test_watch_option_prints_errors_below_the_last_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Console(width=60, force_terminal=True, color_system=None, file=io.StringIO())
    monkeypatch.setattr(following, "make_console", lambda: screen)
    results: list[Any] = [
        "first list",
        Unreachable("cannot reach http://x: refused"),
        "second list",
        KeyboardInterrupt(),
    ]

    def draw() -> str:
        result = results.pop(0)
        if isinstance(result, BaseException):
            raise result
        return str(result)

    with pytest.raises(KeyboardInterrupt):
        following.redraw_until_interrupted(draw, every=0)
    assert isinstance(screen.file, io.StringIO)
    drawn = screen.file.getvalue()
    assert (
        drawn.index("first list") < drawn.index("berth: cannot reach http://x") < drawn.index("second list")
    )


def test_colours_are_disabled_by_no_color_and_in_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, items = ROWS["workloads"]
    for variables, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        monkeypatch.delenv("NO_COLOR", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        console = Console(width=80, force_terminal=True, _environ={"TERM": "xterm-256color", **variables})
        with console.capture() as captured:
            console.print(build_table(items, columns))
        assert ("\x1b[32m" in captured.get()) is coloured
    assert output.make_console().is_terminal is False, "a pipe receives no colours"


def test_table_wider_than_the_terminal_abbreviates_cells_then_drops_columns_then_truncates() -> None:
    sizes = [
        ColumnSize(30),
        ColumnSize(24, brief=8),
        ColumnSize(6, optional=True),
        ColumnSize(9, optional=True),
        ColumnSize(80, flexible=True),
    ]
    everything = [FittedColumn(at) for at in range(5)]
    assert fit_columns(sizes, 200) == everything
    assert fit_columns(sizes, 30 + 24 + 6 + 9 + 16 + 8) == everything, "flexible columns are truncated first"
    brief = [FittedColumn(0), FittedColumn(1, brief=True), FittedColumn(2), FittedColumn(3), FittedColumn(4)]
    assert fit_columns(sizes, 30 + 8 + 6 + 9 + 16 + 8) == brief
    assert fit_columns(sizes, 30 + 8 + 6 + 16 + 6) == [column for column in brief if column.column != 3]
    assert fit_columns(sizes, 30 + 8 + 16 + 4) == [
        FittedColumn(0),
        FittedColumn(1, brief=True),
        FittedColumn(4),
    ]
    assert fit_columns(sizes, 50) == [FittedColumn(0, cut=22), FittedColumn(1, brief=True), FittedColumn(4)]
    assert fit_columns(sizes, 10)[0] == FittedColumn(0, cut=16), "the column is not truncated further"
    assert fit_columns([], 10) == []


def test_times_on_earlier_days_are_printed_as_dates() -> None:
    moment = utc_now().astimezone().replace(hour=12)
    assert format_short_time(moment) == moment.strftime("%H:%M:%S")
    assert format_short_time(moment.replace(year=2020)) == moment.strftime("2020-%m-%d")
    assert format_short_time(None) == "-"
