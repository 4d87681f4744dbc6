"""Tests that secrets are masked wherever logs are read."""

import base64
import random

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from berth.core.masking import BYTES_MIN, PATTERNS_MAX, Masker, _occurrences, build_masker
from pools.runtimes.base import LogChunk
from pools.services.secrets import SecretContent
from projects.models import Pod, ProjectSecret
from projects.services.secrets import set_project_secret, workload_maskers
from scheduler.api.logs.masked_reader import MaskedReader
from scheduler.api.logs.pod_log import PodLog
from tests import factories as make
from tests.api.conftest import Caller
from tests.api.workloads.test_logs import runtime, start_pod
from tests.cast import Cast
from tests.fakes.runtime import FakeRuntime

__all__ = ["runtime"]
TOKEN = "hf_correct-horse"
MASKED = b"*" * len(TOKEN)


@pytest.fixture
def pod(cast: Cast, runtime: FakeRuntime) -> Pod:
    pod = start_pod(cast, runtime)
    make.secret_use(pod.workload, set_token(cast, TOKEN), run=1)
    return pod


def set_token(cast: Cast, value: str) -> ProjectSecret:
    secret, _ = set_project_secret(
        actor=cast.carol, project=cast.vision, name="token", content=SecretContent(value), at=timezone.now()
    )
    return secret


def test_secrets_are_masked_however_a_log_is_read(
    cast: Cast, dave: Caller, runtime: FakeRuntime, pod: Pod
) -> None:
    runtime.write(str(pod.pk), f"one\ntoken={TOKEN}\nthree\n".encode())
    set_token(cast, "another-value")  # the pod still has the value with which it started
    ProjectSecret.objects.all().delete()
    path, masked = f"workloads/{pod.workload_id}/logs", b"one\ntoken=" + MASKED + b"\nthree\n"
    assert dave.get(path).content == masked
    assert dave.get(path, tail=2).content == masked[4:]
    assert dave.get(path, offset=12, limit=3).content == b"***", "the value begins before and ends after it"
    assert dave.get(f"{path}/search", text=TOKEN[:8]).json()["matches"] == 0
    (match,) = dave.get(f"{path}/search", text="token", around=1).json()["items"]
    assert (match["text"], match["before"], match["after"]) == (
        f"token={MASKED.decode()}",
        ["one"],
        ["three"],
    )
    browser = Client()
    browser.force_login(cast.dave.user)
    download = browser.get(f"/workloads/{pod.workload_id}/log/download?pod={pod.pk}")
    assert b"".join(download.streaming_content) == masked  # type: ignore[attr-defined]


def test_possible_secret_prefix_is_withheld_until_more_output_arrives_or_the_log_ends(
    dave: Caller, runtime: FakeRuntime, pod: Pod
) -> None:
    path = f"workloads/{pod.workload_id}/logs"
    runtime.write(str(pod.pk), f"a {TOKEN[:5]}".encode())
    first = dave.get(path)
    assert (first.content, first["X-Next-Offset"], first["X-Complete"]) == (b"a ", "2", "false")
    runtime.write(str(pod.pk), f"{TOKEN[5:]} b {TOKEN[:4]}".encode())
    second = dave.get(path, offset=2)
    assert (second.content, second["X-Complete"]) == (MASKED + b" b ", "false")
    runtime.end(str(pod.pk), exit_code=0)
    last = dave.get(path, offset=int(second["X-Next-Offset"]))
    assert (last.content, last["X-Complete"]) == (TOKEN[:4].encode(), "true")


@pytest.mark.heavy
def test_log_of_a_workload_with_many_secrets_requires_one_additional_query(
    cast: Cast,
    dave: Caller,
    runtime: FakeRuntime,
    pod: Pod,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    log = PodLog(pod, runtime)
    for version in range(5):
        make.secret_use(pod.workload, set_token(cast, f"value-{version}"), run=1)
    with django_assert_num_queries(0):
        assert log.read_chunk(0).data == b"", "the secrets of a pod may be recorded later"
    runtime.write(str(pod.pk), b"value-1 value-4\n")
    with django_assert_num_queries(1):
        assert log.read_chunk(0).data == log.read_large_chunk(0, 100).data == b"******* *******\n"


def test_chunks_of_any_size_are_masked_like_the_entire_log() -> None:
    rng = random.Random(7)
    for _ in range(300):
        values = ["".join(rng.choice("ab") for _ in range(rng.randint(6, 9))) for _ in range(3)]
        log = "".join(rng.choice("aaabbb\n") for _ in range(rng.randint(0, 200))).encode()
        masker = build_masker(values)

        def read(offset: int, limit: int, log: bytes = log) -> LogChunk:
            data = log[offset : offset + min(limit, 7)]  # nodes may return less than requested
            return LogChunk(data, offset, offset + len(data), len(log), False)

        expected, offset, parts = masker.mask(log), 0, b""
        while offset < len(log):
            reader = MaskedReader(read, lambda masker=masker: masker)  # type: ignore[misc]
            chunk, _ = reader.read(offset, rng.randint(1, 20))
            parts, offset = parts + chunk.data, chunk.next_offset
        assert parts == expected, (values, log)


def test_secrets_next_to_a_gap_in_the_log_are_masked_at_any_read_offset() -> None:
    masker, token = build_masker([TOKEN]), TOKEN.encode()
    before, after = b"a line\n" + token + b" " + token[:9], b"two" + token + b" three"
    gap_begin, gap_end = len(before), len(before) + 50
    log = before + bytes(50) + after

    def read(offset: int, limit: int) -> LogChunk:
        if gap_begin <= offset < gap_end:
            offset = gap_end
        end = gap_begin if offset < gap_begin else len(log)
        data = log[offset : min(offset + limit, end)]
        return LogChunk(data, offset, offset + len(data), len(log), False)

    expected = b"a line\n" + MASKED + b" " + b"*" * 9 + bytes(50) + b"two" + MASKED + b" three"
    for offset in range(len(log)):
        for limit in (1, 5, 100):
            chunk, partial_match_length = MaskedReader(read, lambda: masker).read(offset, limit)
            assert chunk.data and chunk.data == expected[chunk.offset : chunk.next_offset], (offset, limit)
            assert partial_match_length == 0


def test_secret_lines_and_their_common_encodings_are_masked() -> None:
    masker = build_masker(['first line\r\nno\nthird "line"', "p&ss word"])
    assert masker.mask(b'first line no third "line"') == b"********** no ************"
    assert masker.mask(b"p%26ss%20word") == b"*" * 13
    assert masker.mask(rb"third \"line\"") == rb"third \"line\"", (
        "only the whole value is also masked as JSON"
    )
    for prefix in (b"", b"u:", b"us:", b"user:"):
        encoded = base64.b64encode(prefix + b"p&ss word" + b"\n")
        masked = masker.mask(encoded)
        assert len(masked) == len(encoded) and masked.count(b"*") >= len("p&ss word") * 8 // 6 - 1
    short = "x" * (BYTES_MIN - 1)
    assert build_masker([short]).mask(short.encode()) == short.encode()


def test_longest_log_suffix_that_could_begin_a_secret_is_withheld() -> None:
    rng = random.Random(8)
    for _ in range(300):
        masker = Masker(tuple(sorted({random_text(rng, "ab", 1, 6) for _ in range(5)})))
        data = random_text(rng, "aaabbb\n", 0, 12)
        beginnings = {pattern[:length] for pattern in masker.patterns for length in range(len(pattern))}
        assert masker.partial_match_length(data) == max(
            len(each) for each in beginnings if data.endswith(each)
        )


def random_text(rng: random.Random, letters: str, shortest: int, longest: int) -> bytes:
    return "".join(rng.choice(letters) for _ in range(rng.randint(shortest, longest))).encode()


def test_patterns_that_contain_a_shorter_pattern_are_dropped() -> None:
    lines = ["a" * count for count in range(6, 366)] + ["ab" * count for count in range(3, 100)]
    masker = build_masker(["\n".join(lines)])
    raw = [pattern for pattern in masker.patterns if set(pattern) <= set(b"ab")]
    assert raw == [b"aaaaaa", b"ababab"]
    for line in lines:
        assert masker.mask(f"b{line}c".encode()) == b"b" + b"*" * len(line) + b"c"


@pytest.mark.parametrize("pattern", [b"aaaaaa", b"abcabc", b"abcdef", b"aabaab"])
def test_overlapping_occurrences_of_a_secret_count_as_one(pattern: bytes) -> None:
    repeated = pattern * 10_000
    assert len(list(_occurrences(pattern, b"x" + repeated + b"x" + repeated))) <= 4
    assert Masker((pattern,)).mask(b"x" + repeated) == b"x" + b"*" * len(repeated)


def test_small_secrets_are_masked_completely_even_next_to_a_large_secret() -> None:
    bundle = "\n".join(f"{line:064}" for line in range(990))
    masker = build_masker([bundle, TOKEN, *(f"token-{number}" for number in range(50))])
    assert masker.is_partial and len(masker.patterns) <= PATTERNS_MAX
    encoded = base64.b64encode(TOKEN.encode()).rstrip(b"=")
    assert masker.mask(TOKEN.encode() + b" token-49") == MASKED + b" ********"
    assert masker.mask(encoded).count(b"*") >= len(encoded) - 1, "encodings of small values are kept"
    assert masker.mask(bundle[:64].encode()) == b"*" * 64
    assert masker.mask(bundle[-64:].encode()) != b"*" * 64
    assert not build_masker([TOKEN, TOKEN]).is_partial


@pytest.mark.heavy
def test_warning_about_secrets_with_too_many_lines_is_logged_once(
    cast: Cast, pod: Pod, caplog: pytest.LogCaptureFixture
) -> None:
    lines = "\n".join(f"line {number}" for number in range(PATTERNS_MAX))
    make.secret_use(pod.workload, set_token(cast, lines), run=1)
    for _ in range(2):
        masker = workload_maskers([pod.workload_id])[pod.workload_id]
        assert masker.mask(TOKEN.encode()) == MASKED
    (record,) = [record for record in caplog.records if "too many lines" in record.message]
    assert str(pod.workload_id) in record.message


@pytest.mark.heavy
def test_user_who_sets_a_short_secret_is_warned(cast: Cast, dave: Caller) -> None:
    (warning,) = dave("PUT", "secrets/pin", {"value": "12345"}).json()["warnings"]
    assert "do not mask" in warning
    assert dave("PUT", "secrets/pin", {"value": "123456"}).json()["warnings"] == []
