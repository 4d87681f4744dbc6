"""Base class for the `berth top` screens, with periodic refreshes and key bindings."""

from abc import abstractmethod
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App
from textual.binding import BindingType
from textual.widgets import Static

from berth.cli.exits import explain_error
from berth.cli.printing.text import add_full_stop, printable


class RefreshingApp(App[None]):
    """Screen that is redrawn periodically. `fetch_snapshot` runs in a thread, because it blocks."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [("q", "quit", "Quit"), ("r", "refresh_now", "Refresh")]

    def __init__(self, *, title: str, every: float) -> None:
        super().__init__()
        self.title, self._every = title, every

    @abstractmethod
    def fetch_snapshot(self) -> Any:
        """Fetch all data for the screen."""

    @abstractmethod
    def show(self, snapshot: Any) -> None:
        """Draw the data that `fetch_snapshot` returned."""

    def start_refreshing(self) -> None:
        self.set_interval(self._every, self.action_refresh_now)
        self.action_refresh_now()

    @work(thread=True, exclusive=True)
    def action_refresh_now(self) -> None:
        """Refresh the screen. After an error, show its message above the previous values."""
        try:
            snapshot = self.fetch_snapshot()
        except Exception as error:
            if (explanation := explain_error(error)) is None:
                raise
            self.call_from_thread(self._show_error, " ".join(map(add_full_stop, explanation[1])))
            return
        self.call_from_thread(self._redraw, snapshot)

    def _show_error(self, message: str) -> None:
        self.query_one("#error", Static).update(Text(printable(message)))

    def _redraw(self, snapshot: Any) -> None:
        self._show_error("")
        self.show(snapshot)
