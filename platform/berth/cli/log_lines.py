"""Filter log output for the terminal: all lines or matching ones, without control sequences.

What a program writes may hold sequences that move the cursor, change the window's title or type for the
reader. Colours go through; of a pipe or a file everything does, as it is.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from berth.client.workloads import LineInLog

LONGEST = 1 << 20  # bytes of a line that is judged as one
HELD_BACK = 4096  # of a sequence that has not ended
COLOUR = rb"\x1b\[[0-9;:]*m"
COMMANDS = re.compile(
    rb"(" + COLOUR + rb")"
    rb"|\x1b\[[0-?]*[ -/]*[@-~]"  # other sequences with parameters
    rb"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\)"  # titles, links, device strings
    rb"|\x1b[ -/]*[0-~]?"
    rb"|\xc2[\x80-\x9f]"
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)  # fmt: skip
BEGUN = re.compile(rb"(\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c]*\x1b?|[ -/]*)|\xc2)\Z")


class Screen:
    """Standard output. Call `end` when nothing more comes."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._held = b""

    def __call__(self, piece: bytes) -> None:
        if self._is_terminal:
            piece, self._held = harmless(self._held + piece)
        self._write(piece)

    def end(self) -> None:
        if self._held:
            self._write(harmless(self._held + b"\n")[0][:-1])
            self._held = b""

    def _write(self, piece: bytes) -> None:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


class Matching:
    """Hands on the lines that contain a text. Call `end` when nothing more comes."""

    def __init__(self, text: str, ignore_case: bool, out: Screen) -> None:
        self._fold = ignore_case
        self._wanted = text.encode().lower() if ignore_case else text.encode()
        self._out, self._rest = out, b""

    def __call__(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        if found := [line for line in lines if self._matches(line)]:
            self._out(b"\n".join(found) + b"\n")

    def end(self) -> None:
        if self._matches(self._rest):
            self._out(self._rest + b"\n")
        self._rest = b""
        self._out.end()

    def _matches(self, line: bytes) -> bool:
        return self._wanted in (line.lower() if self._fold else line)


def as_grep(found: Iterable["LineInLog"], last: int) -> Iterator[tuple[int, str]]:
    """Number and line, each once, beyond `last`: `12:` before one that matches, `11-` before others."""
    shown: dict[int, str] = {}
    for each in found:
        before = enumerate(each.before, each.line - len(each.before))
        for number, text in (*before, *enumerate(each.after, each.line + 1)):
            shown.setdefault(number, f"{number}-{text}")
        shown[each.line] = f"{each.line}:{each.text}"
    yield from sorted((number, line) for number, line in shown.items() if number > last)


def harmless(data: bytes) -> tuple[bytes, bytes]:
    """What may go to a terminal, and the beginning of a sequence that is still to be judged."""
    begun = BEGUN.search(data, max(0, len(data) - HELD_BACK))
    held = begun[0] if begun else b""
    return COMMANDS.sub(rb"\1", data[: len(data) - len(held)]), held
