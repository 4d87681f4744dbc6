"""Lists in narrow terminals and in machine-readable formats."""

import csv
import io
import itertools
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from berth.cli import following, output
from berth.cli.columns import workload_columns
from berth.cli.commands import nodes, pools, quota
from berth.cli.output import ColumnSize, FittedColumn, Output, csv_text, fit_columns, table_of
from berth.cli.text import now, short
from berth.client import Unreachable
from berth.client.models.pools import Node, NodePool
from berth.client.models.tenants import Quota
from berth.client.models.workloads import Workload
from tests.cli.desk_of_commands import Terminal
from tests.client.desk import Desk, page, workload

WIDE = "训练模型-大规模-実験"
POOL = {
    "name": "a-pool-with-a-long-name",
    "provider": "fake",
    "nodes_min": 1,
    "nodes_max": 400,
    "nodes_desired": 400,
}
QUOTA = {
    "owner": {"kind": "project", "name": "a-project-with-a-rather-long-name"}, "pool": "local", "gpu": 1000,
    "limit": {"gpu": 2000}, "weight": 1, "over_quota": True, "standing": None,
}  # fmt: skip
ROWS: dict[str, tuple[Any, Any]] = {
    "workloads": (
        workload_columns(now()),
        [Workload.model_validate(workload(WIDE[:n], message=WIDE * 4, reason="Why")) for n in (3, 12)],
    ),
    "pools": (pools._columns(), [NodePool.model_validate(POOL)]),
    "nodes": (nodes._node_columns(), [Node.model_validate({"name": "n", "pool": "p", "state": "ready"})]),
    "quotas": (quota.quota_columns(), [Quota.model_validate(QUOTA)]),
}


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("kind", ROWS)
def test_every_row_is_one_line_that_fits_wide_letters_too(kind: str, width: int) -> None:
    columns, items = ROWS[kind]
    console = Console(width=width, force_terminal=True, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(table_of(items, columns, Output.TABLE, width))
    lines = captured.get().splitlines()
    assert len(lines) == 1 + len(items)
    assert max(map(cell_len, lines)) <= width
    assert lines[0].split()[0] == columns[0].title, "what it is called is never left out"


def test_less_room_leaves_out_columns_rather_than_cutting_names() -> None:
    columns, items = ROWS["quotas"]
    kept = {width: len(table_of(items, columns, Output.TABLE, width).columns) for width in (60, 90, 200)}
    assert kept[60] < kept[90] < kept[200]
    console = Console(width=60, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(table_of(items, columns, Output.TABLE, 60))
    assert "a-project-with-a-rather-long-name" in captured.get()


def test_a_spreadsheet_gets_a_row_for_each_and_no_formulas(terminal: Terminal) -> None:
    evil = workload("train", message='=HYPERLINK("http://x")', labels={"team": "nlp"}, pools=["a", "b"])
    told = terminal.run("list", "-o", "csv", desk=Desk(page([evil, workload("other")]))).stdout
    first, second = csv.DictReader(io.StringIO(told))
    assert (first["name"], first["gpus.requested"], first["labels.team"], first["pools"]) == (
        "train",
        "4",
        "nlp",
        "a; b",
    )
    assert first["message"] == '\'=HYPERLINK("http://x")'
    assert (first["exit_code"], first["preemptible"]) == ("", "true")
    assert (second["name"], second["labels.team"]) == ("other", "")


def test_one_thing_is_one_row_and_nothing_is_nothing() -> None:
    assert csv_text({"a": 1, "b": {"c": -2, "d": [{"x": 1}]}}) == "a,b.c,b.d\n1,-2,x=1\n"
    assert csv_text([]) == ""
    assert csv_text(["x", "y"]) == "value\nx\ny\n"


def test_a_list_that_is_watched_is_drawn_anew_and_stays_while_the_server_is_away(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = itertools.count()

    def sleep(_: float) -> None:
        if next(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(following, "sleep", sleep)
    desk = Desk(page([workload("one")]), page([workload("two")]), page([workload("three")]))
    done = terminal.run("list", "--watch", desk=desk)
    assert done.exit_code == 130
    assert [line.split()[0] for line in done.stdout.splitlines() if line] == [
        "NAME",
        "one",
        "NAME",
        "two",
        "NAME",
        "three",
    ]
    data = terminal.run("list", "--watch", "-o", "json", desk=desk)
    assert (data.exit_code, data.stderr) == (
        2, "berth: --watch excludes --output json; allowed: table, wide\n",
    )  # fmt: skip


def test_on_a_terminal_the_last_list_stays_below_which_the_trouble_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Console(width=60, force_terminal=True, color_system=None, file=io.StringIO())
    monkeypatch.setattr(following, "console_of", lambda: screen)
    looks: list[Any] = [
        "first list",
        Unreachable("cannot reach http://x: refused"),
        "second list",
        KeyboardInterrupt(),
    ]

    def draw() -> str:
        look = looks.pop(0)
        if isinstance(look, BaseException):
            raise look
        return str(look)

    with pytest.raises(KeyboardInterrupt):
        following.watched(draw, every=0)
    assert isinstance(screen.file, io.StringIO)
    drawn = screen.file.getvalue()
    assert (
        drawn.index("first list") < drawn.index("berth: cannot reach http://x") < drawn.index("second list")
    )


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, items = ROWS["workloads"]
    for variables, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        monkeypatch.delenv("NO_COLOR", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        console = Console(width=80, force_terminal=True, _environ={"TERM": "xterm-256color", **variables})
        with console.capture() as captured:
            console.print(table_of(items, columns))
        assert ("\x1b[32m" in captured.get()) is coloured
    assert output.console_of().is_terminal is False, "a pipe gets none at all"


def test_wide_table_uses_short_cells_then_drops_columns_then_cuts() -> None:
    sizes = [
        ColumnSize(30),
        ColumnSize(24, brief=8),
        ColumnSize(6, spare=True),
        ColumnSize(9, spare=True),
        ColumnSize(80, grows=True),
    ]
    everything = [FittedColumn(at) for at in range(5)]
    assert fit_columns(sizes, 200) == everything
    assert fit_columns(sizes, 30 + 24 + 6 + 9 + 16 + 8) == everything, "columns that grow are cut first"
    brief = [FittedColumn(0), FittedColumn(1, brief=True), FittedColumn(2), FittedColumn(3), FittedColumn(4)]
    assert fit_columns(sizes, 30 + 8 + 6 + 9 + 16 + 8) == brief
    assert fit_columns(sizes, 30 + 8 + 6 + 16 + 6) == [column for column in brief if column.column != 3]
    assert fit_columns(sizes, 30 + 8 + 16 + 4) == [
        FittedColumn(0),
        FittedColumn(1, brief=True),
        FittedColumn(4),
    ]
    assert fit_columns(sizes, 50) == [FittedColumn(0, cut=22), FittedColumn(1, brief=True), FittedColumn(4)]
    assert fit_columns(sizes, 10)[0] == FittedColumn(0, cut=16), "and is not cut further"
    assert fit_columns([], 10) == []


def test_a_time_says_as_much_as_tells_it_from_others() -> None:
    moment = now().astimezone().replace(hour=12)
    assert short(moment) == moment.strftime("%H:%M:%S")
    assert short(moment.replace(year=2020)) == moment.strftime("2020-%m-%d")
    assert short(None) == "-"
