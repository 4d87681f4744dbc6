"""Screen of `berth top` for one service. The `r` key refreshes the screen, and `q` quits."""

from collections import deque
from collections.abc import Callable

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import DataTable, Footer, Header, Sparkline, Static

from berth.cli.printing.text import format_time
from berth.cli.top import panels
from berth.cli.top.refreshing import RefreshingApp
from berth.cli.top.service import ServiceSnapshot

SAMPLES_MAX = 120


class ServiceTop(RefreshingApp):
    CSS = """
    #first { height: 11; }
    #status, #metrics, #lines { border: round $primary; padding: 0 1; width: 1fr; height: 100%; }
    #metrics { width: 34; }
    #lines { width: 40; }
    Sparkline { height: 2; }
    DataTable { height: auto; max-height: 14; border: round $primary; }
    #error { color: $error; height: auto; }
    """

    def __init__(self, fetch_snapshot: Callable[[], ServiceSnapshot], *, title: str, every: float) -> None:
        super().__init__(title=title, every=every)
        self._fetch = fetch_snapshot
        self._usage: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._queued: deque[float] = deque(maxlen=SAMPLES_MAX)

    def compose(self) -> ComposeResult:
        yield Header()
        yield Static(id="error")
        with VerticalScroll():
            with Horizontal(id="first"):
                yield Static("loading ...", id="status")
                yield Static(id="metrics")
                with VerticalScroll(id="lines"):
                    yield Static("token usage")
                    yield Sparkline(id="usage")
                    yield Static("queued requests")
                    yield Sparkline(id="queued")
            yield DataTable(id="conditions", cursor_type="none")
            yield DataTable(id="engines", cursor_type="none")
            yield DataTable(id="history", cursor_type="none")
        yield Footer()

    def on_mount(self) -> None:
        tables = (("conditions", panels.CONDITIONS), ("engines", panels.ENGINES), ("history", panels.HISTORY))
        for name, columns in tables:
            table = self.query_one(f"#{name}", DataTable)
            table.add_columns(*columns)
            table.border_title = name
        for name in ("status", "metrics"):
            self.query_one(f"#{name}").border_title = name
        self.start_refreshing()

    def fetch_snapshot(self) -> ServiceSnapshot:
        return self._fetch()

    def show(self, snapshot: ServiceSnapshot) -> None:
        self.sub_title = f"as of {format_time(snapshot.at)}"
        self.query_one("#status", Static).update(Text("\n".join(panels.status_lines(snapshot))))
        metrics = "\n".join(f"{name:<18} {value:>9}" for name, value in panels.metric_rows(snapshot))
        self.query_one("#metrics", Static).update(Text(metrics))
        self._fill("conditions", panels.condition_rows(snapshot))
        self._fill("engines", panels.engine_rows(snapshot))
        self._fill("history", panels.history_rows(snapshot))
        self._draw(snapshot)

    def _fill(self, name: str, rows: list[panels.Row]) -> None:
        table = self.query_one(f"#{name}", DataTable)
        table.clear()
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))

    def _draw(self, snapshot: ServiceSnapshot) -> None:
        metrics = snapshot.status.get("recent_metrics") or {}
        for name, key, series in (
            ("usage", "avg_token_usage", self._usage),
            ("queued", "total_queue_reqs", self._queued),
        ):
            if isinstance(value := metrics.get(key), int | float):
                series.append(float(value))
            self.query_one(f"#{name}", Sparkline).data = list(series)
