"""Tests for the search for error lines."""

from itertools import chain, repeat

import pytest

from pools.runtimes.base import LogChunk
from scheduler.reports import log_errors
from scheduler.reports.log_errors import search_errors
from scheduler.reports.log_search import LinePosition, ReadChunk
from scheduler.reports.log_text import render_as_terminal_line

ERRORS = [
    "AssertionError",
    "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB",
    "[rank0]: torch.cuda.OutOfMemoryError: CUDA out of memory",
    "\x1b[31mERROR\x1b[0m loss is NaN",
    "2026-01-01 12:00:00 | FATAL | node lost",
    "make: error: no rule",
    "KeyboardInterrupt",
    "Killed",
    "train.sh: line 3: 712 Segmentation fault (core dumped)",
    "sh: 1: torchrun: command not found",
    "cat: /data/x: No such file or directory",
    "node-1: NCCL WARN Cuda failure",
    "50%\r60%\rError: disk full",
]
ORDINARY = [
    "0 errors, error_rate 0.1", "mean squared error 0.3", "errors: 0", "no exception was raised",
    "ERROR is gone\rdone", "skilled workers", "Exceptional results", "KILLED_BY_TIMEOUT=false",
]  # fmt: skip


def read(data: bytes, gap: tuple[int, int] = (0, 0)) -> ReadChunk:
    def chunk(offset: int, limit: int) -> LogChunk:
        begin = gap[1] if gap[0] <= offset < gap[1] else offset
        stop = gap[0] if begin < gap[0] else len(data)
        part = data[begin : min(begin + limit, stop)]
        return LogChunk(part, begin, begin + len(part), len(data), False)

    return chunk


@pytest.mark.parametrize("size", [64, 101, 1 << 22])
def test_error_lines_are_found_with_their_line_numbers(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_errors, "CHUNK_SIZE", size)
    lines = [line for pair in zip(ERRORS, ORDINARY * 2, strict=False) for line in pair]
    data = "\n".join(lines).encode()
    result = search_errors(read(data), max_matches=100, context_lines=0)
    assert [match.text.decode() for match in result.lines] == ERRORS
    assert [match.at.line for match in result.lines] == [lines.index(line) + 1 for line in ERRORS]
    assert all(data[match.at.offset :].startswith(match.text) for match in result.lines)
    assert (result.matches, result.is_complete, result.resume_at) == (len(ERRORS), True, None)


@pytest.mark.parametrize("size", [16, 1 << 22])
def test_traceback_and_the_error_at_its_end_count_as_one_error(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_errors, "CHUNK_SIZE", size)
    lines = [
        "Traceback (most recent call last):", "  File a.py", "ValueError: no data",
        "step 1",
        "[rank0]: Traceback (most recent call last):", "step 2", "[rank0]:   File a.py", "[rank1]: ok",
        "[rank0]: RuntimeError: CUDA out of memory",
        "Traceback (most recent call last):", "  File a.py", "queue.Empty",
        "Traceback (most recent call last):", "  File a.py", "KeyError: 'a'", "",
        "During handling of the above exception, another exception occurred:", "",
        "Traceback (most recent call last):", "  File b.py", "RuntimeError: b",
        "Traceback (most recent call last):", "  File still written",
    ]  # fmt: skip
    result = search_errors(read("\n".join(lines).encode()), max_matches=100, context_lines=0)
    assert [match.at.line for match in result.lines] == [3, 9, 10, 15, 21, 22]
    assert result.matches == 6 and result.is_complete


def test_error_search_continues_from_the_returned_position() -> None:
    data = b"ok\n" + b"ERROR\n" * 5
    first = search_errors(read(data), max_matches=2, context_lines=1)
    assert (first.matches, first.lines[0].before, first.lines[0].after) == (5, (b"ok",), (b"ERROR",))
    assert first.resume_at == LinePosition(15, 4)
    second = search_errors(read(data), start=LinePosition(15, 4), max_matches=9, context_lines=0)
    assert [match.at.line for match in second.lines] == [4, 5, 6]


def test_error_after_a_gap_has_its_line_number_in_the_stored_log() -> None:
    data = b"one\ntwo half" + b"\0" * 100 + b" half\nERROR\n"
    [match] = search_errors(read(data, gap=(12, 112)), max_matches=9, context_lines=0).lines
    assert (match.text, match.at.line) == (b"ERROR", 4)


def test_error_search_stops_at_its_time_limit_and_can_be_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_errors, "CHUNK_SIZE", 10)
    data = b"ERROR one\n" * 3
    ticks = chain([0.0], repeat(9.0))
    first = search_errors(read(data), max_matches=9, context_lines=0, clock=lambda: next(ticks))
    assert (first.matches, first.resume_at, first.is_complete) == (1, LinePosition(10, 2), False)


def test_error_search_stops_at_its_time_limit_within_a_chunk() -> None:
    data = b"ok\n" + b"ERROR one\n" * 5 + b"ok\n"
    ticks = chain([0.0, 1.0, 2.0], repeat(9.0))
    first = search_errors(read(data), max_matches=9, context_lines=0, clock=lambda: next(ticks))
    assert (first.matches, first.resume_at) == (3, LinePosition(33, 5))
    assert first.resume_at
    second = search_errors(read(data), start=first.resume_at, max_matches=9, context_lines=0)
    assert [match.at.line for match in second.lines] == [5, 6] and second.is_complete


def test_number_of_lines_scanned_for_tracebacks_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = 0

    def count(raw_line: bytes) -> str:
        nonlocal scanned
        scanned += 1
        return render_as_terminal_line(raw_line)

    monkeypatch.setattr(log_errors, "render_as_terminal_line", count)
    lines = [f"{number:05}: Traceback (most recent call last):" for number in range(3000)]
    result = search_errors(read("\n".join(lines).encode()), max_matches=0, context_lines=0)
    assert result.matches == 3000, "tracebacks without an end are separate errors"
    assert scanned <= 3000 + 100_000


def test_very_long_line_is_searched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_errors, "CHUNK_SIZE", 100)
    data = b"x" * 1000 + b" ERROR " + b"x" * 1000 + b"\nERROR\n"
    result = search_errors(read(data), max_matches=9, context_lines=0)
    assert [match.at.line for match in result.lines] == [1, 2]
