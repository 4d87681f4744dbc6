"""Tests for log search with bounded memory."""

import random
import re
import tracemalloc

import pytest

from pools.runtimes.base import LogChunk
from scheduler.reports import log_search
from scheduler.reports.log_search import LinePosition, search_log


class Log:
    """A log in memory, optionally with a gap, that counts the bytes read."""

    def __init__(self, data: bytes, hole: tuple[int, int] = (0, 0)) -> None:
        self.data, self.hole, self.reads = data, hole, 0

    def read(self, offset: int, limit: int) -> LogChunk:
        self.reads += 1
        start, end = self.hole
        if start <= offset < end:
            offset = end
        elif offset < start:
            limit = min(limit, start - offset)
        data = self.data[offset : offset + limit]
        return LogChunk(data, offset, offset + len(data), len(self.data), complete=True)


def matching_lines(log: Log, text: str, **options: object) -> list[int]:
    return [line.at.line for line in search_log(log.read, text, **options).lines]  # type: ignore[arg-type]


def test_log_match_has_a_line_number_an_offset_and_context() -> None:
    log = Log(b"one\ntwo error\nthree\nerror error\nfive")
    result = search_log(log.read, "error", context_lines=1)
    assert (result.matches, result.is_complete, result.resume_at) == (2, True, None)
    first, second = result.lines
    assert (first.at, first.text, first.before, first.after) == (
        LinePosition(4, 2), b"two error", (b"one",), (b"three",),
    )  # fmt: skip
    assert (second.at.line, second.before, second.after) == (4, (b"three",), (b"five",))


def test_log_search_is_case_sensitive_by_default() -> None:
    log = Log(b"Error\nERROR\nerror\n")
    assert matching_lines(log, "error") == [3]
    assert matching_lines(log, "eRRor", ignore_case=True) == [1, 2, 3]


def test_search_text_is_not_interpreted_as_a_regular_expression() -> None:
    log = Log("a.c\nabc\n[x]*\nGrüße\n<b>\n".encode())
    assert matching_lines(log, "a.c") == [1]
    assert matching_lines(log, "[x]*") == [3]
    assert matching_lines(log, "Grüße") == [4]
    assert matching_lines(log, "nothing of it") == []


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64])
def test_log_search_results_do_not_depend_on_the_chunk_size(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "CHUNK_SIZE", piece)
    chance = random.Random(piece)
    for _ in range(60):
        data = bytes(chance.choice(b"ab\n") for _ in range(chance.randrange(80)))
        wanted = "".join(chance.choice("ab") for _ in range(chance.randrange(1, 4)))
        lines = data.split(b"\n")
        matching = [number for number, line in enumerate(lines, 1) if wanted.encode() in line]
        begins = [0, *(match.end() for match in re.finditer(b"\n", data))]
        result = search_log(Log(data).read, wanted)
        assert [line.at.line for line in result.lines] == matching, (data, wanted)
        assert [line.at.offset for line in result.lines] == [begins[number - 1] for number in matching]
        assert [line.text for line in result.lines] == [lines[number - 1] for number in matching]


def test_log_search_counts_and_paginates_all_matches() -> None:
    log = Log(b"".join(b"%d hit\nmiss\n" % number for number in range(10)))
    first = search_log(log.read, "hit", max_matches=4)
    assert (first.matches, len(first.lines)) == (10, 4)
    assert first.resume_at is not None
    second = search_log(log.read, "hit", max_matches=10, start=first.resume_at)
    assert [line.text for line in first.lines + second.lines] == [b"%d hit" % n for n in range(10)]
    assert [line.at.line for line in second.lines] == [9, 11, 13, 15, 17, 19]
    assert second.matches == 6


def test_log_search_resumes_after_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "CHUNK_SIZE", 8)
    log = Log(b"abcd\nwanted\nabcd\nwanted")
    ticks = iter(range(100))
    first = search_log(log.read, "wanted", seconds=2, clock=lambda: next(ticks))
    assert (first.is_complete, first.searched_bytes, first.resume_at) == (False, 16, LinePosition(12, 3))
    second = search_log(log.read, "wanted", start=LinePosition(12, 3))
    assert first.matches + second.matches == 2
    assert [line.at.line for line in second.lines] == [4]


def test_log_match_does_not_span_a_gap() -> None:
    log = Log(b"begin\nwan" + b"-" * 100 + b"ted\nwanted\n", hole=(9, 109))
    result = search_log(log.read, "wanted")
    assert [line.at.offset for line in result.lines] == [113]


def test_long_log_is_read_in_chunks_and_an_endless_line_counts_once() -> None:
    class Endless:
        size, largest_read = 300 * 1024 * 1024, 0

        def read(self, offset: int, limit: int) -> LogChunk:
            self.largest_read = max(self.largest_read, limit)
            count = min(limit, self.size - offset)
            return LogChunk(b"x" * count, offset, offset + count, self.size, complete=True)

    log = Endless()
    tracemalloc.start()
    result = search_log(log.read, "xxx", context_lines=2, ignore_case=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (result.matches, result.is_complete, len(result.lines[0].text)) == (
        1,
        True,
        log_search.MAX_LINE_BYTES,
    )
    assert peak < 24 * 1024 * 1024
    assert log.largest_read <= log_search.CHUNK_SIZE
