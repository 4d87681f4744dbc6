"""Screen of `berth top` for the whole cluster. The `s` key sorts workloads, `r` refreshes, and `q` quits."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import DataTable, Footer, Header, Static

from berth.cli.printing.output import Column
from berth.cli.printing.text import format_time, printable
from berth.cli.top.cluster import (
    ClusterSnapshot,
    Sort,
    headline,
    node_columns,
    pool_columns,
    workload_columns,
)
from berth.cli.top.refreshing import RefreshingApp


class ClusterTop(RefreshingApp):
    CSS = """
    #error { color: $error; height: auto; }
    #headline { height: 1; text-style: bold; }
    DataTable { border: round $primary; }
    #pools { height: auto; max-height: 20%; }
    #nodes { height: auto; max-height: 35%; }
    #workloads { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*RefreshingApp.BINDINGS, ("s", "sort", "Sort")]

    def __init__(
        self, fetch_snapshot: Callable[[Sort], ClusterSnapshot], *, title: str, every: float, sort: Sort
    ) -> None:
        super().__init__(title=title, every=every)
        self._fetch, self._sort = fetch_snapshot, sort

    def compose(self) -> ComposeResult:
        yield Header()
        yield Static(id="error")
        yield Static("loading ...", id="headline")
        for name in ("pools", "nodes", "workloads"):
            yield DataTable(id=name, cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        for name in ("pools", "nodes", "workloads"):
            self.query_one(f"#{name}").border_title = name
        self.start_refreshing()

    def action_sort(self) -> None:
        kinds = list(Sort)
        self._sort = kinds[(kinds.index(self._sort) + 1) % len(kinds)]
        self.action_refresh_now()

    def fetch_snapshot(self) -> ClusterSnapshot:
        return self._fetch(self._sort)

    def show(self, snapshot: ClusterSnapshot) -> None:
        self.sub_title = f"as of {format_time(snapshot.at)}"
        self.query_one("#headline", Static).update(Text(printable(headline(snapshot))))
        self._fill("pools", snapshot.pools, pool_columns())
        self._fill("nodes", snapshot.nodes, node_columns())
        self._fill("workloads", snapshot.workloads, workload_columns(snapshot.at))
        self.query_one("#workloads").border_title = f"workloads by {self._sort}"

    def _fill(self, name: str, rows: Sequence[Any], columns: Sequence[Column]) -> None:
        """Replace the table's rows, but keep the cursor and scroll position."""
        table = self.query_one(f"#{name}", DataTable)
        cursor, left, top = table.cursor_row, table.scroll_x, table.scroll_y
        if not table.columns:
            table.add_columns(*(column.title for column in columns))
        table.clear()
        for row in rows:
            styles = (column.style(row) if column.style else "" for column in columns)
            cells = (printable(column.cell_text(row)) for column in columns)
            table.add_row(*map(Text, cells, styles))
        table.move_cursor(row=min(cursor, max(0, len(rows) - 1)), animate=False)
        table.scroll_to(left, top, animate=False)
