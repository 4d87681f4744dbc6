"""Print responses as tables, JSON, YAML or CSV."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.printing.text import printable
from berth.core.backports import StrEnum

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

UNLIMITED_WIDTH = 100_000


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"

    @property
    def is_data(self) -> bool:
        """Whether the format is machine-readable.

        Machine-readable output contains the server's values unchanged.
        """
        return self in (Output.JSON, Output.YAML, Output.CSV)


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]


@dataclass(frozen=True, slots=True)
class Column:
    """Table column.

    On a narrow terminal, cells are formatted by `brief`, `optional` columns are dropped, and `flexible`
    columns are truncated.
    """

    title: str
    cell_text: Callable[[Any], str]
    wide: bool = False
    right: bool = False
    flexible: bool = False
    optional: bool = False
    brief: Callable[[Any], str] | None = None
    style: Callable[[Any], str] | None = None


def show_list(items: Sequence[Any], columns: Sequence[Column], output: Output, empty_message: str) -> None:
    """Print the items. If a table would be empty, print `empty_message` on stderr instead."""
    if output.is_data:
        show_data([item_to_dict(item) for item in items], output)
    elif items:
        print_items(items, columns, output)
    else:
        print(empty_message, file=sys.stderr)


def show_one(item: Any, output: Output, describe: Callable[[Any], None]) -> None:
    if output.is_data:
        show_data(item_to_dict(item), output)
    else:
        describe(item)


def show_data(data: object, output: Output) -> None:
    if output is Output.JSON:
        print(json.dumps(data, indent=2, ensure_ascii=False))
    elif output is Output.CSV:
        print(csv_text(data), end="")
    else:
        import yaml

        print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), end="")


def item_to_dict(item: Any) -> Any:
    return item if isinstance(item, Mapping) else item.to_dict()


def build_table(
    items: Iterable[Any],
    columns: Sequence[Column],
    output: Output = Output.TABLE,
    width: int = UNLIMITED_WIDTH,
) -> "Table":
    """Return a table whose lines have at most `width` characters."""
    from rich.table import Table

    items = list(items)
    shown = [column for column in columns if output is Output.WIDE or not column.wide]
    rows = [[_render_cell(column, column.cell_text, item) for column in shown] for item in items]
    briefs = {
        at: [_render_cell(column, column.brief, item) for item in items]
        for at, column in enumerate(shown)
        if column.brief is not None
    }
    sizes = [
        ColumnSize(_column_width(column, [row[at] for row in rows]),
             _column_width(column, briefs[at]) if at in briefs else None, column.optional, column.flexible)
        for at, column in enumerate(shown)
    ]  # fmt: skip
    fitted = fit_columns(sizes, width)
    table = Table(box=None, pad_edge=False, padding=(0, COLUMN_GAP, 0, 0), header_style="bold")
    for fit in fitted:
        column = shown[fit.column]
        table.add_column(
            column.title,
            no_wrap=not column.flexible,
            justify="right" if column.right else "left",
            overflow="ellipsis",
            max_width=fit.cut,
        )
    for number, row in enumerate(rows):
        table.add_row(*(briefs[fit.column][number] if fit.brief else row[fit.column] for fit in fitted))
    return table


def _column_width(column: Column, cells: Sequence["Text"]) -> int:
    return max([len(column.title), *(cell.cell_len for cell in cells)])


def print_items(items: Iterable[Any], columns: Sequence[Column], output: Output = Output.TABLE) -> None:
    """Print a table of the items, fitted to the terminal unless `output` is wide."""
    full_width = output is Output.WIDE
    print_table(
        build_table(items, columns, output, UNLIMITED_WIDTH if full_width else terminal_width()),
        full_width=full_width,
    )


def _render_cell(column: Column, format_cell: Callable[[Any], str], item: Any) -> "Text":
    from rich.text import Text

    style = column.style(item) if column.style else ""
    return Text(printable(format_cell(item)), style, no_wrap=True, overflow="ellipsis")


def print_table(table: "Table", *, full_width: bool = False) -> None:
    """Print a table, truncated to the width of the terminal unless `full_width` is set."""
    console = make_console()
    if console.is_terminal and not full_width:
        console.print(table)
        return
    console.width = UNLIMITED_WIDTH
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def terminal_width() -> int:
    """Return the width of the terminal in characters, or UNLIMITED_WIDTH if there is no terminal."""
    console = make_console()
    return console.width if console.is_terminal else UNLIMITED_WIDTH


def make_console() -> "Console":
    from rich.console import Console

    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else UNLIMITED_WIDTH)


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print one name and value per line, omitting empty values."""
    filled = [(name, value) for name, value in fields if value]
    width = max((len(name) for name, _ in filled), default=0)
    for name, value in filled:
        print(f"{name:<{width}}  {printable(value)}")


def print_section(title: str) -> None:
    print(f"\n{title}")


COLUMN_GAP = 2
CUT_WIDTH_MIN = 16  # minimum width of a truncated cell, in characters


@dataclass(frozen=True, slots=True)
class ColumnSize:
    """Size of a column, in characters."""

    width: int
    brief: int | None = None  # column width with abbreviated cells, or None if no cell is abbreviated
    optional: bool = False
    flexible: bool = False


@dataclass(frozen=True, slots=True)
class FittedColumn:
    """Visible column, truncated to `cut` characters if `cut` is set."""

    column: int
    brief: bool = False
    cut: int | None = None


def fit_columns(sizes: Sequence[ColumnSize], terminal_width: int) -> list[FittedColumn]:
    """Return the columns, shortened or dropped until they fit into `terminal_width` characters."""
    shown, brief = list(range(len(sizes))), False

    def needed_width(at: int) -> int:
        size = sizes[at]
        width = size.brief if brief and size.brief is not None else size.width
        return min(width, CUT_WIDTH_MIN) if size.flexible else width

    def excess_width() -> int:
        return sum(needed_width(at) + COLUMN_GAP for at in shown) - COLUMN_GAP - terminal_width

    if excess_width() > 0:
        brief = True
    for at in reversed(range(len(sizes))):
        if excess_width() > 0 and sizes[at].optional:
            shown.remove(at)
    cuts: dict[int, int] = {}
    fixed = [at for at in shown if not sizes[at].flexible]
    if excess_width() > 0 and fixed:
        widest = max(fixed, key=lambda at: (needed_width(at), -at))
        cuts[widest] = max(min(CUT_WIDTH_MIN, needed_width(widest)), needed_width(widest) - excess_width())
    return [FittedColumn(at, brief and sizes[at].brief is not None, cuts.get(at)) for at in shown]


WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Refresh the output until interrupted with Ctrl-C.")
]


FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")


def csv_text(data: object) -> str:
    """Return CSV with one row per list item, or one row for an object. Nested keys become `outer.inner`."""
    rows = [dict(_flatten(item)) for item in (data if isinstance(data, list) else [data])]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flatten(item: Any, before: str = "") -> Iterator[tuple[str, str]]:
    if not isinstance(item, Mapping):
        yield before.rstrip(".") or "value", _csv_cell(item)
        return
    for key, value in item.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", _csv_cell(value)


def _csv_cell(value: Any) -> str:
    """Format a CSV cell. An apostrophe is put before text that a spreadsheet would evaluate as a formula."""
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "; ".join(_format_list_item(entry) for entry in value)
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA_PREFIXES) else text


def _format_list_item(entry: Any) -> str:
    if isinstance(entry, Mapping):
        return " ".join(f"{key}={_csv_cell(value)}" for key, value in entry.items())
    return _csv_cell(entry)
