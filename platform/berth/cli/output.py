"""Print answers as tables, JSON, YAML or CSV."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.exits import BadInput
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


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]


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
        from berth.cli.output import csv_text

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


GAP = 2
CUT_TO = 16  # with so many letters a cell that is cut is still of use


@dataclass(frozen=True, slots=True)
class Wish:
    """What a column needs: its longest cell, and the longest of them written shorter, if they can be."""

    width: int
    brief: int | None = None
    spare: bool = False
    grows: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A column that is shown; `cut`: no more letters than these."""

    column: int
    brief: bool = False
    cut: int | None = None


def fitted(wishes: Sequence[Wish], room: int) -> list[Place]:
    """Of the spare columns the last go first; of the others the widest is cut."""
    kept, brief = list(range(len(wishes))), False

    def needed(at: int) -> int:
        wish = wishes[at]
        width = wish.brief if brief and wish.brief is not None else wish.width
        return min(width, CUT_TO) if wish.grows else width

    def over() -> int:
        return sum(needed(at) + GAP for at in kept) - GAP - room

    if over() > 0:
        brief = True
    for at in reversed(range(len(wishes))):
        if over() > 0 and wishes[at].spare:
            kept.remove(at)
    cuts: dict[int, int] = {}
    fixed = [at for at in kept if not wishes[at].grows]
    if over() > 0 and fixed:
        widest = max(fixed, key=lambda at: (needed(at), -at))
        cuts[widest] = max(min(CUT_TO, needed(widest)), needed(widest) - over())
    return [Place(at, brief and wishes[at].brief is not None, cuts.get(at)) for at in kept]


WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Keep running and refresh the output.")]


def listing(
    find: Callable[[], Sequence[Any]],
    columns: Callable[[], Sequence[Column]],
    output: Output,
    nothing: str,
    *,
    watch: bool = False,
) -> None:
    """`find` and `columns` are asked anew for each look: ages go on, too."""
    if not watch:
        show_list(find(), columns(), output, nothing)
        return
    from berth.cli.following import watched

    if output.is_data:
        raise BadInput(f"--watch excludes --output {output}; allowed: table, wide")
    watched(lambda: table_of(find(), columns(), output, room()))


FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(data: object) -> str:
    """A list has a row for each item, an object one row; what lies deeper is named `outer.inner`."""
    rows = [dict(_flat(item)) for item in (data if isinstance(data, list) else [data])]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flat(item: Any, before: str = "") -> Iterator[tuple[str, str]]:
    if not isinstance(item, Mapping):
        yield before.rstrip(".") or "value", _csv_cell(item)
        return
    for key, value in item.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", _csv_cell(value)


def _csv_cell(value: Any) -> str:
    """A list of plain values is one cell; a spreadsheet must not take a name for a formula."""
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "; ".join(_listed(entry) for entry in value)
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA) else text


def _listed(entry: Any) -> str:
    if isinstance(entry, Mapping):
        return " ".join(f"{key}={_csv_cell(value)}" for key, value in entry.items())
    return _csv_cell(entry)
