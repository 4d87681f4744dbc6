"""Print answers as tables, JSON, YAML or CSV."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.fitting import GAP, Wish, fitted
from berth.cli.text import safe

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
        """For programs: as the server said it, not as people read it."""
        return self in (Output.JSON, Output.YAML, Output.CSV)


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the answer.")]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. Where the terminal is narrow its cells are written as `brief` says, `spare`
    columns are left out, the last one first, and `grows` columns are cut."""

    title: str
    of: Callable[[Any], str]
    wide: bool = False
    right: bool = False
    grows: bool = False
    spare: bool = False
    brief: Callable[[Any], str] | None = None
    style: Callable[[Any], str] | None = None


def show_list(items: Sequence[Any], columns: Sequence[Column], output: Output, nothing: str) -> None:
    """All items, or the sentence that says that there are none."""
    if output.is_data:
        show_data([plain_of(item) for item in items], output)
    elif items:
        print_items(items, columns, output)
    else:
        print(nothing, file=sys.stderr)


def show_one(item: Any, output: Output, describe: Callable[[Any], None]) -> None:
    if output.is_data:
        show_data(plain_of(item), output)
    else:
        describe(item)


def show_data(data: object, output: Output) -> None:
    if output is Output.JSON:
        print(json.dumps(data, indent=2, ensure_ascii=False))
    elif output is Output.CSV:
        from berth.cli.flat import csv_text

        print(csv_text(data), end="")
    else:
        import yaml

        print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), end="")


def plain_of(item: Any) -> Any:
    return item if isinstance(item, Mapping) else item.plain()


def table_of(
    items: Iterable[Any],
    columns: Sequence[Column],
    output: Output = Output.TABLE,
    width: int = UNLIMITED_WIDTH,
) -> "Table":
    """`width`: how many letters a line may have."""
    from rich.table import Table

    items = list(items)
    shown = [column for column in columns if output is Output.WIDE or not column.wide]
    rows = [[_cell(column, column.of, item) for column in shown] for item in items]
    briefs = {
        at: [_cell(column, column.brief, item) for item in items]
        for at, column in enumerate(shown)
        if column.brief is not None
    }
    wishes = [
        Wish(_widest(column, [row[at] for row in rows]),
             _widest(column, briefs[at]) if at in briefs else None, column.spare, column.grows)
        for at, column in enumerate(shown)
    ]  # fmt: skip
    places = fitted(wishes, width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for place in places:
        column = shown[place.column]
        table.add_column(
            column.title,
            no_wrap=not column.grows,
            justify="right" if column.right else "left",
            overflow="ellipsis",
            max_width=place.cut,
        )
    for number, row in enumerate(rows):
        table.add_row(
            *(briefs[place.column][number] if place.brief else row[place.column] for place in places)
        )
    return table


def _widest(column: Column, cells: Sequence["Text"]) -> int:
    return max([len(column.title), *(cell.cell_len for cell in cells)])


def print_items(items: Iterable[Any], columns: Sequence[Column], output: Output = Output.TABLE) -> None:
    """A table of them, as the terminal has room for it, or whole."""
    whole = output is Output.WIDE
    print_table(table_of(items, columns, output, UNLIMITED_WIDTH if whole else room()), whole=whole)


def _cell(column: Column, of: Callable[[Any], str], item: Any) -> "Text":
    from rich.text import Text

    style = column.style(item) if column.style else ""
    return Text(safe(of(item)), style, no_wrap=True, overflow="ellipsis")


def print_table(table: "Table", *, whole: bool = False) -> None:
    """Cut to the terminal's width; whole lines where that was asked for or the reader is another program."""
    console = console_of()
    if console.is_terminal and not whole:
        console.print(table)
        return
    console.width = UNLIMITED_WIDTH
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def room() -> int:
    """Letters on a line of the terminal; as many as one likes where there is none."""
    console = console_of()
    return console.width if console.is_terminal else UNLIMITED_WIDTH


def console_of() -> "Console":
    from rich.console import Console

    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else UNLIMITED_WIDTH)


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """A name and its value on each line; what has no value is left out."""
    known = [(name, value) for name, value in fields if value]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        print(f"{name:<{width}}  {safe(value)}")


def print_section(title: str) -> None:
    print(f"\n{title}")
