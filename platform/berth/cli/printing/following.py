"""Follow the output or phases of a workload, or refresh a table."""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import sleep
from typing import TYPE_CHECKING, Any

from berth.cli.exits import InvalidInput
from berth.cli.printing.output import Column, Output, build_table, make_console, show_list, terminal_width
from berth.cli.printing.text import message_line, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from berth.client import Client
    from berth.client.models.workloads import LogMatch, Pod, Workload

PAUSE_SECONDS = 0.5
SLOW_PAUSE_SECONDS = 1.0
CONNECTION_LOSSES_MAX = 10


def follow_output(
    client: "Client", workload: "Workload", pod: str | None = None, tail: int | None = None,
    out: "TerminalOutput | LineFilter | None" = None, *, timestamps: bool = False,
) -> "Workload":  # fmt: skip
    """Print a pod's output across its attempts until the workload ends. Return the ended workload.

    Phase changes go to stderr. `tail` limits the output of the first attempt.
    """
    out = out or TerminalOutput()
    printed, reported = "", ("", "")
    while True:
        latest = _latest_pod(client, workload, pod)
        is_new = latest is not None and latest.id != printed
        # Report the end only after the entire output has been printed.
        if (workload.phase, workload.reason) != reported and not (is_new and workload.has_ended):
            reported = (workload.phase, workload.reason)
            print_change(workload)
        if latest is not None and is_new:
            _print_attempt(client, latest, workload.id, None if printed else tail, out, timestamps)
            printed = latest.id
        elif workload.has_ended:
            return workload
        else:
            placed = workload.phase in ("starting", "running", "stopping")
            time.sleep(PAUSE_SECONDS if placed else SLOW_PAUSE_SECONDS)
        workload = client.workloads.get(workload.id)


def _latest_pod(client: "Client", workload: "Workload", name: str | None) -> "Pod | None":
    """Return the pod's latest attempt in the current run, or None if there is none.

    If no pod is named, use the pod with the lowest rank.
    """
    pods = [pod for pod in client.workloads.pods(workload.id) if pod.run == workload.run]
    if name is not None:
        pods = [pod for pod in pods if pod.short_name == name]
    return min(pods, key=lambda pod: (pod.rank, -pod.created_at.timestamp()), default=None)


def _print_attempt(
    client: "Client", pod: "Pod", workload_id: str, tail: int | None,
    out: "TerminalOutput | LineFilter", timestamps: bool,
) -> None:  # fmt: skip
    """Print a pod's output as it arrives. After a lost connection, resume at the same byte."""
    from berth.client import Unreachable

    offset, losses, stamped = 0, 0, TimestampedOutputReader()
    if tail is not None:
        chunk = client.workloads.log(
            workload_id, pod=pod.short_name, run=pod.run, tail=tail, timestamps=timestamps
        )
        out(stamped.read(chunk.data)[0] if timestamps else chunk.data)
        offset = chunk.next_offset
    while True:
        try:
            for piece in client.workloads.log_stream(
                workload_id, pod=pod.short_name, run=pod.run, offset=offset, timestamps=timestamps
            ):
                text, size = stamped.read(piece) if timestamps else (piece, len(piece))
                out(text)
                offset, losses = offset + size, 0
            out.end()
            return
        except Unreachable:
            losses += 1
            stamped.drop_incomplete()
            if losses > CONNECTION_LOSSES_MAX:
                raise
            time.sleep(PAUSE_SECONDS * losses)


LINE_MAX = 1 << 20  # maximum number of bytes per line; longer lines are matched in parts
SEQUENCE_MAX = 4096  # maximum length of an incomplete escape sequence at the end of the data, in bytes
COLOUR = rb"\x1b\[[0-9;:]*m"
CONTROL_SEQUENCES = re.compile(
    rb"(" + COLOUR + rb")"
    rb"|\x1b\[[0-?]*[ -/]*[@-~]"  # escape sequences with parameters, other than colours
    rb"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\)"  # escape sequences for titles, links and device strings
    rb"|\x1b[ -/]*[0-~]?"
    rb"|\xc2[\x80-\x9f]"
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)  # fmt: skip
STAMP_BYTES = len("2026-01-01T00:00:00Z ")
INCOMPLETE = re.compile(rb"(\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c]*\x1b?|[ -/]*)|\xc2)\Z")


class TerminalOutput:
    """Writer to stdout that removes control sequences if stdout is a terminal.

    Call `end` after the last chunk.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._pending = b""

    def __call__(self, piece: bytes) -> None:
        if self._is_terminal:
            piece, self._pending = strip_control_sequences(self._pending + piece)
        self._write_text(piece)

    def end(self) -> None:
        if self._pending:
            self._write_text(strip_control_sequences(self._pending + b"\n")[0][:-1])
            self._pending = b""

    def _write_text(self, piece: bytes) -> None:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


class TimestampedOutputReader:
    """Reader of timestamped output. It counts the bytes of the log without the timestamps."""

    def __init__(self) -> None:
        self._is_line_start, self._incomplete = True, b""

    def read(self, piece: bytes) -> tuple[bytes, int]:
        """Return the text before any incomplete timestamp, and the number of log bytes that it contains."""
        data, at, size = self._incomplete + piece, 0, 0
        while at < len(data):
            if self._is_line_start:
                if len(data) - at <= STAMP_BYTES:
                    break
                at += STAMP_BYTES
            line_feed = data.find(b"\n", at)
            end = line_feed + 1 if line_feed >= 0 else len(data)
            self._is_line_start = line_feed >= 0
            at, size = end, size + end - at
        self._incomplete = data[at:]
        return data[:at], size

    def drop_incomplete(self) -> None:
        """Discard an incomplete timestamp, because the server will send it again."""
        self._incomplete = b""


class LineFilter:
    """Filter that passes only lines that contain a given text. Call `end` after the last chunk."""

    def __init__(self, text: str, ignore_case: bool, out: TerminalOutput) -> None:
        self._fold = ignore_case
        self._pattern = text.encode().lower() if ignore_case else text.encode()
        self._out, self._incomplete_line = out, b""

    def __call__(self, piece: bytes) -> None:
        *lines, self._incomplete_line = (self._incomplete_line + piece).split(b"\n")
        if len(self._incomplete_line) > LINE_MAX:
            lines, self._incomplete_line = [*lines, self._incomplete_line], b""
        if matching := [line for line in lines if self._matches(line)]:
            self._out(b"\n".join(matching) + b"\n")

    def end(self) -> None:
        if self._matches(self._incomplete_line):
            self._out(self._incomplete_line + b"\n")
        self._incomplete_line = b""
        self._out.end()

    def _matches(self, line: bytes) -> bool:
        return self._pattern in (line.lower() if self._fold else line)


def format_like_grep(matches: Iterable["LogMatch"], last: int) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each matching or context line after the line `last`.

    The text begins with the line number, as in `12:` for a match and `11-` for context.
    """
    shown: dict[int, str] = {}
    for match in matches:
        before = enumerate(match.before, match.line - len(match.before))
        for number, text in (*before, *enumerate(match.after, match.line + 1)):
            shown.setdefault(number, f"{number}-{text}")
        shown[match.line] = f"{match.line}:{match.text}"
    yield from sorted((number, line) for number, line in shown.items() if number > last)


def strip_control_sequences(data: bytes) -> tuple[bytes, bytes]:
    """Return the data without control sequences, and any incomplete sequence at the end of the data."""
    incomplete = INCOMPLETE.search(data, max(0, len(data) - SEQUENCE_MAX))
    tail = incomplete[0] if incomplete else b""
    return CONTROL_SEQUENCES.sub(rb"\1", data[: len(data) - len(tail)]), tail


REFRESH_SECONDS = 2.0


def redraw_until_interrupted(draw: Callable[[], "RenderableType"], every: float = REFRESH_SECONDS) -> None:
    """Redraw the output in place until Ctrl-C.

    If the output is not a terminal, print it again after each interval. While the server is unreachable, the
    last output stays on the screen.
    """
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from berth.client import Unreachable

    console = make_console()
    last = draw()
    if not console.is_terminal:
        while True:
            console.print(last)
            print(flush=True)
            sleep(every)
            last = draw()
    with Live(last, console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            sleep(every)
            try:
                last = draw()
                live.update(last, refresh=True)
            except Unreachable as error:
                live.update(Group(last, Text(message_line(error), style="red")), refresh=True)


def print_listing(
    fetch: Callable[[], Sequence[Any]],
    columns: Callable[[], Sequence[Column]],
    output: Output,
    empty_message: str,
    *,
    watch: bool = False,
) -> None:
    """Print a list. With `watch`, refresh it by calling `fetch` and `columns` again."""
    if not watch:
        show_list(fetch(), columns(), output, empty_message)
        return
    if output.is_data:
        raise InvalidInput(f"--watch cannot be combined with --output {output}. Use table or wide.")
    redraw_until_interrupted(lambda: build_table(fetch(), columns(), output, terminal_width()))


def follow_phases(client: "Client", workload: "Workload") -> "Workload":
    """Print each change of the workload's state. Return the workload once it has ended."""
    last = workload
    for last in client.workloads.changes(workload.id):
        print_change(last)
    return last


def print_change(workload: "Workload") -> None:
    """Print the phase, reason and message to stderr, because stdout is for pod output."""
    reason = f" ({workload.reason})" if workload.reason else ""
    message = f": {workload.message}" if workload.message else ""
    print(
        printable(f"{workload.handle} is {workload.phase}{reason}{message}"),
        file=sys.stderr,
        flush=True,
    )
