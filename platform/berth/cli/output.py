"""Here we print answers: as tables that fit the terminal, or whole, as JSON or YAML."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.text import safe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

UNLIMITED_WIDTH = 100_000


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the answer.")]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. `grows` columns give way first where the terminal is narrow."""

    title: str
    of: Callable[[Any], str]
    wide: bool = False
    right: bool = False
    grows: bool = False
    style: Callable[[Any], str] | None = None


def show_list(items: Sequence[Any], columns: Sequence[Column], output: Output, nothing: str) -> None:
    """All items, or the sentence that says that there are none."""
    if output in (Output.JSON, Output.YAML):
        show_data([plain_of(item) for item in items], output)
    elif items:
        print_table(table_of(items, columns, output), whole=output is Output.WIDE)
    else:
        print(nothing, file=sys.stderr)


def show_one(item: Any, output: Output, describe: Callable[[Any], None]) -> None:
    if output in (Output.JSON, Output.YAML):
        show_data(plain_of(item), output)
    else:
        describe(item)


def show_data(data: object, output: Output) -> None:
    if output is Output.JSON:
        print(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        import yaml

        print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), end="")


def plain_of(item: Any) -> Any:
    return item if isinstance(item, Mapping) else item.plain()


def table_of(items: Iterable[Any], columns: Sequence[Column], output: Output = Output.TABLE) -> "Table":
    from rich.table import Table
    from rich.text import Text

    shown = [column for column in columns if output is Output.WIDE or not column.wide]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in shown:
        table.add_column(
            column.title,
            no_wrap=not column.grows,
            justify="right" if column.right else "left",
            overflow="ellipsis",
        )
    for item in items:
        cells = ((safe(column.of(item)), column.style(item) if column.style else "") for column in shown)
        table.add_row(*(Text(text, style=style, no_wrap=True, overflow="ellipsis") for text, style in cells))
    return table


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
