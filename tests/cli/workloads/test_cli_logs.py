"""Tests for `berth logs`: safe terminal output and search."""

import io
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from berth.cli.printing import following
from berth.cli.printing.following import (
    LineFilter,
    TerminalOutput,
    TimestampedOutputReader,
    strip_control_sequences,
)
from tests.cli.terminal import Terminal
from tests.client.stub_server import StubServer, page, pod, workload

UNSAFE_TEXT = b"\x1b]0;owned\x07red \x1b[31mtext\x1b[0m\x1b[2J\x1b[6n\x08\x9b\x00\r\n\xc2\x9b1mend\n"
SAFE_TEXT = b"red \x1b[31mtext\x1b[0m\x9b\r\n1mend\n"


class TtyOutput(io.BytesIO):
    @property
    def buffer(self) -> "TtyOutput":
        return self

    def isatty(self) -> bool:
        return True


def search_results(*lines: tuple[int, str], before: Any = (), after: Any = (), **more: Any) -> httpx.Response:
    items = [
        {"line": number, "offset": number, "text": text, "before": before, "after": after}
        for number, text in lines
    ]
    fields = {
        "pod": "worker-0",
        "run": 1,
        "matches": len(items),
        "size": 9,
        "searched_bytes": 9,
        "next": None,
    }
    return httpx.Response(200, json={**fields, "items": items, **more})


def test_colours_are_printed_and_other_control_sequences_are_removed() -> None:
    assert strip_control_sequences(UNSAFE_TEXT) == (SAFE_TEXT, b"")


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_split_control_sequences_are_removed(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tty = TtyOutput()
    monkeypatch.setattr("sys.stdout", tty)
    screen = TerminalOutput()
    for place in range(0, len(UNSAFE_TEXT), size):
        screen(UNSAFE_TEXT[place : place + size])
    screen.end()
    assert tty.getvalue() == SAFE_TEXT


def test_unicode_text_is_printed_unchanged() -> None:
    text = "Grüße 你好 ± naïve ñ\t|\n".encode()
    assert strip_control_sequences(text) == (text, b"")


def test_matching_lines_split_across_chunks_are_printed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    tty = TtyOutput()
    monkeypatch.setattr("sys.stdout", tty)
    matching = LineFilter("LOSS", True, TerminalOutput())
    for piece in (b"lo", b"ss 1\nnothing\nLos", b"s 2\n", b"the last loss"):
        matching(piece)
    matching.end()
    assert tty.getvalue() == b"loss 1\nLoss 2\nthe last loss\n"


def test_search_results_are_printed_once_with_context(terminal: Terminal) -> None:
    first = search_results((3, "hit <b>"), (4, "hit 2"), before=["a"], after=["z"], next="70-9")
    second = search_results((40, "hit 3"))
    server = StubServer(page([workload(run=1)]), httpx.Response(200, json=workload(run=1)), first, second)
    result = terminal.run(
        "logs", "train", "--grep", "hit", "-i", "-C", "1", "--pod", "worker-0", server=server
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["2-a", "3:hit <b>", "4:hit 2", "5-z", "--", "40:hit 3"]
    query = server.requests[2].url.params
    assert (query["text"], query["ignore_case"], query["around"], query["pod"]) == (
        "hit", "true", "1", "worker-0",
    )  # fmt: skip
    assert server.requests[3].url.params["cursor"] == "70-9"


def test_search_without_matches_prints_a_message(terminal: Terminal) -> None:
    server = StubServer(page([workload(run=1)]), httpx.Response(200, json=workload(run=1)), search_results())
    result = terminal.run("logs", "train", "--grep", "hit", server=server)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No matching" in result.stderr


def test_follow_option_with_a_search_prints_matching_lines(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0)
    ended = httpx.Response(200, json=workload(phase="failed", run=1))
    server = StubServer(
        page([workload(run=1)]), httpx.Response(200, json=workload(run=1)), page([pod()]),
        httpx.Response(200, content=b"loss 1\nother\nloss 2"), ended, page([pod()]),
    )  # fmt: skip
    result = terminal.run("logs", "-f", "train", "--grep", "loss", server=server)
    assert (result.exit_code, result.stdout) == (10, "loss 1\nloss 2\n")


TIME = b"2026-01-01T00:00:00Z "


def test_timestamps_are_requested_and_printed(terminal: Terminal) -> None:
    log = httpx.Response(200, content=TIME + b"one\n", headers={"X-Next-Offset": "4", "X-Complete": "true"})
    server = StubServer(page([workload(run=1)]), httpx.Response(200, json=workload(run=1)), log)
    result = terminal.run("logs", "train", "--timestamps", server=server)
    assert (result.exit_code, result.stdout) == (0, "2026-01-01T00:00:00Z one\n")
    assert server.requests[2].url.params["timestamps"] == "true"


def test_followed_log_keeps_its_timestamps_after_a_lost_connection(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0)

    def broken() -> Iterator[bytes]:
        yield TIME + b"one\n" + TIME[:9]
        raise httpx.ReadError("connection lost")

    server = StubServer(
        page([workload(run=1)]), httpx.Response(200, json=workload(run=1)), page([pod()]),
        httpx.Response(200, content=broken()), httpx.Response(200, content=TIME + b"two\n"),
        httpx.Response(200, json=workload(phase="failed", run=1)), page([pod()]),
    )  # fmt: skip
    result = terminal.run("logs", "-f", "train", "-t", server=server)
    assert result.stdout.encode() == TIME + b"one\n" + TIME + b"two\n"
    assert server.requests[4].url.params["offset"] == "4", "timestamps do not count"


@pytest.mark.parametrize("size", [1, 5, 21, 22, 100])
def test_timestamps_split_across_chunks_do_not_count_as_log_bytes(size: int) -> None:
    text = TIME + b"one\n" + TIME + b"\n" + TIME + b"two"
    stamped = TimestampedOutputReader()
    read = [stamped.read(text[place : place + size]) for place in range(0, len(text), size)]
    assert b"".join(piece for piece, _ in read) == text
    assert sum(count for _, count in read) == len(b"one\n\ntwo")


@pytest.mark.parametrize(
    "options", [["-i"], ["-C", "2"], ["--grep", ""], ["--grep", "a\nb"], ["--grep", "a", "--tail", "5"],
                ["--grep", "a", "-f", "-C", "1"], ["--grep", "a", "-t"]],
)  # fmt: skip
def test_conflicting_options_exit_with_code_2(terminal: Terminal, options: list[str]) -> None:
    assert terminal.run("logs", "train", *options, server=StubServer(page([]))).exit_code == 2
