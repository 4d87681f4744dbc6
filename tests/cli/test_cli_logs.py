"""`berth logs`: safe terminal output and search."""

import io
from typing import Any

import httpx
import pytest

from berth.cli import following
from berth.cli.following import Matching, Screen, split_safe
from tests.cli.conftest import Terminal
from tests.client.desk import Desk, page, workload

EVIL = b"\x1b]0;owned\x07red \x1b[31mtext\x1b[0m\x1b[2J\x1b[6n\x08\x9b\x00\r\n\xc2\x9b1mend\n"
TAME = b"red \x1b[31mtext\x1b[0m\x9b\r\n1mend\n"


class Tty(io.BytesIO):
    """Standard output that is a terminal."""

    @property
    def buffer(self) -> "Tty":
        return self

    def isatty(self) -> bool:
        return True


def found(*lines: tuple[int, str], before: Any = (), after: Any = (), **more: Any) -> httpx.Response:
    items = [
        {"line": number, "offset": number, "text": text, "before": before, "after": after}
        for number, text in lines
    ]
    told = {"pod": "worker-0", "run": 1, "matches": len(items), "size": 9, "searched_bytes": 9, "next": None}
    return httpx.Response(200, json={**told, "items": items, **more})


def test_colours_go_through_and_commands_do_not() -> None:
    assert split_safe(EVIL) == (TAME, b"")


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_it_does_not_matter_in_which_pieces_they_come(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tty = Tty()
    monkeypatch.setattr(following.sys, "stdout", tty)
    screen = Screen()
    for place in range(0, len(EVIL), size):
        screen(EVIL[place : place + size])
    screen.end()
    assert tty.getvalue() == TAME


def test_text_in_all_alphabets_is_text() -> None:
    text = "Grüße 你好 ± naïve ñ\t|\n".encode()
    assert split_safe(text) == (text, b"")


def test_lines_that_match_come_whole_however_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    tty = Tty()
    monkeypatch.setattr(following.sys, "stdout", tty)
    matching = Matching("LOSS", True, Screen())
    for piece in (b"lo", b"ss 1\nnothing\nLos", b"s 2\n", b"the last loss"):
        matching(piece)
    matching.end()
    assert tty.getvalue() == b"loss 1\nLoss 2\nthe last loss\n"


def test_what_matches_is_found_by_the_server_and_printed_once(terminal: Terminal) -> None:
    first = found((3, "hit <b>"), (4, "hit 2"), before=["a"], after=["z"], next="70-9")
    second = found((40, "hit 3"))
    desk = Desk(page([workload(run=1)]), httpx.Response(200, json=workload(run=1)), first, second)
    result = terminal.run("logs", "train", "--grep", "hit", "-i", "-C", "1", "--pod", "worker-0", desk=desk)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["2-a", "3:hit <b>", "4:hit 2", "5-z", "--", "40:hit 3"]
    asked = desk.requests[2].url.params
    assert (asked["text"], asked["ignore_case"], asked["around"], asked["pod"]) == (
        "hit", "true", "1", "worker-0",
    )  # fmt: skip
    assert desk.requests[3].url.params["cursor"] == "70-9"


def test_nothing_found_is_said(terminal: Terminal) -> None:
    desk = Desk(page([workload(run=1)]), httpx.Response(200, json=workload(run=1)), found())
    result = terminal.run("logs", "train", "--grep", "hit", desk=desk)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No matching" in result.stderr


def test_lines_that_match_are_followed(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0)
    pods = [{"id": "p", "role": "worker", "index": 0, "run": 1}]
    ended = httpx.Response(200, json=workload(phase="failed", run=1))
    desk = Desk(
        page([workload(run=1)]), httpx.Response(200, json=workload(run=1)), page(pods),
        httpx.Response(200, content=b"loss 1\nother\nloss 2"), ended, page(pods),
    )  # fmt: skip
    result = terminal.run("logs", "-f", "train", "--grep", "loss", desk=desk)
    assert (result.exit_code, result.stdout) == (10, "loss 1\nloss 2\n")


@pytest.mark.parametrize(
    "options", [["-i"], ["-C", "2"], ["--grep", ""], ["--grep", "a\nb"], ["--grep", "a", "--tail", "5"],
                ["--grep", "a", "-f", "-C", "1"]],
)  # fmt: skip
def test_what_does_not_go_together_is_bad_usage(terminal: Terminal, options: list[str]) -> None:
    assert terminal.run("logs", "train", *options, desk=Desk(page([]))).exit_code == 2
