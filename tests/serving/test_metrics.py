"""Tests for engine metrics in Prometheus format.

Incomplete, missing or invalid values are treated as unknown.
"""

import math
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projects.engine.replicas.readings import MetricReading
from projects.serving.base import ErrorKind, ServingError
from projects.serving.http_client import HttpClient
from projects.serving.metrics import parse_metrics
from projects.serving.scraping import ScrapeTarget, scrape
from tests.fakes.serving import Fail, FakeEngine, FakeEngines
from tests.serving.conftest import Starts


def parse(*lines: str) -> MetricReading:
    return parse_metrics("engine_0", "".join(f"{line}\n" for line in lines))


def buckets(name: str, *counts: tuple[str, float], labels: str = "") -> list[str]:
    return [f'sglang:{name}_bucket{{{labels}le="{bound}"}} {count}' for bound, count in counts]


@pytest.mark.shows("RLX-64", "RLX-66", "RLX-67")
def test_engine_under_load_reports_all_metrics_that_the_autoscaler_uses(
    start: Starts, http_client: HttpClient
) -> None:
    server = start(slots=1, seconds_per_token=0.005, max_tokens=100)
    for _ in range(2):
        http_client.post(server.address, "/generate", {"sampling_params": {"max_new_tokens": 10}})
    seen = parse_metrics("engine_0", http_client.get(server.address, "/metrics").text())
    assert (seen.token_usage, seen.queued, seen.running) == (0, 0, 0)
    assert (seen.used_tokens, seen.max_tokens) == (0, 100)
    for histogram in (seen.queue_time, seen.first_token, seen.inter_token):
        assert histogram is not None
        assert (histogram.total, histogram.bounds[-1]) == (2, math.inf)


@pytest.mark.shows("RLX-64")
def test_gauges_are_summed_and_ratios_are_averaged_across_ranks() -> None:
    seen = parse(
        'sglang:num_queue_reqs{tp_rank="0"} 3', 'sglang:num_queue_reqs{tp_rank="1"} 4',
        'sglang:gen_throughput{tp_rank="0"} 100', 'sglang:gen_throughput{tp_rank="1"} 50.5',
        'sglang:token_usage{tp_rank="0"} 0.9', 'sglang:token_usage{tp_rank="1"} 0.3',
        'sglang:max_total_num_tokens{tp_rank="0"} 3000', 'sglang:max_total_num_tokens{tp_rank="1"} 1000',
    )  # fmt: skip
    assert (seen.queued, seen.throughput, seen.max_tokens) == (7, 150.5, 4000)
    assert seen.token_usage == pytest.approx(0.75)


@pytest.mark.shows("RLX-64")
def test_gauge_split_by_priority_is_counted_once() -> None:
    seen = parse(
        'sglang:num_queue_reqs{priority="",tp_rank="0"} 5',
        'sglang:num_queue_reqs{priority="1",tp_rank="0"} 2',
        'sglang:num_queue_reqs{priority="2",tp_rank="0"} 3',
    )  # fmt: skip
    assert seen.queued == 5


@pytest.mark.shows("RLX-64")
def test_histogram_buckets_of_all_label_sets_are_merged_by_bound() -> None:
    name = "time_to_first_token_seconds"
    seen = parse(
        *buckets(name, ("1.0", 2), ("5.0", 4), ("+Inf", 4), labels='is_streaming="true",'),
        *buckets(name, ("1.0", 1), ("5.0", 1), ("+Inf", 7), labels='is_streaming="false",'),
    )
    assert seen.first_token is not None
    assert seen.first_token.buckets == ((1.0, 3), (5.0, 5), (math.inf, 11))


def test_vllm_metric_names_are_recognised() -> None:
    seen = parse(
        'vllm:kv_cache_usage_perc{model_name="m"} 0.5', 'vllm:num_requests_waiting{model_name="m"} 7',
        "# TYPE vllm:generation_tokens counter", 'vllm:generation_tokens_total{model_name="m"} 1234',
        'vllm:request_queue_time_seconds_bucket{le="1.0"} 3',
        'vllm:request_queue_time_seconds_bucket{le="+Inf"} 4',
    )  # fmt: skip
    assert (seen.token_usage, seen.queued, seen.generated, seen.throughput) == (0.5, 7, 1234, None)
    assert seen.queue_time is not None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300"])
def test_invalid_gauge_value_is_treated_as_unknown(value: str) -> None:
    seen = parse(f"sglang:num_queue_reqs {value}", f"sglang:token_usage {value}", "sglang:num_running_reqs 2")
    assert (seen.queued, seen.token_usage, seen.running) == (None, None, 2)


def test_usage_above_capacity_is_treated_as_unknown() -> None:
    seen = parse("sglang:token_usage 1.7", "sglang:num_used_tokens 200", "sglang:max_total_num_tokens 100")
    assert (seen.token_usage, seen.used_tokens, seen.max_tokens) == (None, None, None)


def test_sum_is_unknown_if_one_rank_reports_an_invalid_value() -> None:
    seen = parse('sglang:num_queue_reqs{tp_rank="0"} 3', 'sglang:num_queue_reqs{tp_rank="1"} NaN')
    assert seen.queued is None


def test_duplicate_metric_is_treated_as_unknown() -> None:
    assert (
        parse('sglang:num_queue_reqs{tp_rank="0"} 3', 'sglang:num_queue_reqs{tp_rank="0"} 9').queued is None
    )


@pytest.mark.parametrize(
    "counts",
    [
        [("1.0", 5.0), ("5.0", 4.0), ("+Inf", 6.0)],
        [("1.0", 5.0), ("5.0", 6.0)],
        [("1.0", 5.0), ("1.0", 5.0), ("+Inf", 6.0)],
        [("soon", 5.0), ("+Inf", 6.0)],
        [("1.0", -5.0), ("+Inf", 6.0)],
        [("1.0", math.nan), ("+Inf", 6.0)],
    ],
)
def test_metric_with_invalid_histogram_buckets_is_treated_as_unknown(counts: list[tuple[str, float]]) -> None:
    assert parse(*buckets("queue_time_seconds", *counts)).queue_time is None


@pytest.mark.parametrize(
    "text", ["sglang:num_queue_reqs 12", 'sglang:num_queue_reqs{tp_rank="', "<html>\n", "a b c d\n"]
)
def test_truncated_or_invalid_text_is_reported_as_unreadable(text: str) -> None:
    with pytest.raises(ServingError) as caught:
        parse_metrics("engine_0", text)
    assert caught.value.kind is ErrorKind.UNREADABLE


@given(st.text(alphabet=st.sampled_from('sglang:_token_usage{}="le,+Inf.0 1\n#TYPE'), max_size=200))
def test_any_engine_output_produces_a_reading_or_a_serving_error(text: str) -> None:
    try:
        seen = parse_metrics("engine_0", text)
    except ServingError as error:
        assert error.kind is ErrorKind.UNREADABLE
    else:
        assert seen.token_usage is None or 0 <= seen.token_usage <= 1


def fleet(**engines: FakeEngine) -> tuple[FakeEngines, list[ScrapeTarget]]:
    adapter = FakeEngines()
    for name, engine in engines.items():
        adapter.appear(f"http://{name}", engine)
    return adapter, [ScrapeTarget(name, f"http://{name}", adapter) for name in engines]


@pytest.mark.shows("RLX-64")
def test_unresponsive_engine_is_missing_from_the_sample() -> None:
    well, torn = FakeEngine(metrics="sglang:num_queue_reqs 3\n"), FakeEngine(metrics="torn")
    adapter, targets = fleet(one=well, two=torn)
    targets.append(ScrapeTarget("three", "http://three", adapter))
    seen = scrape(targets, now=lambda: 1000.0, seconds=2.0)
    assert (seen.sample.at, seen.sample.engines) == (1000.0, ("one", "two", "three"))
    assert [answer.engine for answer in seen.sample.readings] == ["one"]
    assert {name: error.kind for name, error in seen.errors.items()} == {
        "two": ErrorKind.UNREADABLE, "three": ErrorKind.UNREACHABLE,
    }  # fmt: skip


@pytest.mark.shows("RLX-64")
def test_engines_are_queried_in_parallel_with_a_timeout() -> None:
    together, never = threading.Barrier(5), threading.Event()

    class Engines(FakeEngines):
        def metrics(self, engine: str) -> str:
            if engine == "silent":
                never.wait()
            together.wait(60)  # each answers only while the others are queried too
            return "sglang:num_running_reqs 0\n"

    targets = [ScrapeTarget(f"engine_{number}", "answering", Engines()) for number in range(5)]
    seen = scrape([*targets, ScrapeTarget("engine_5", "silent", Engines())], now=time.time, seconds=5.0)
    together.abort()
    never.set()
    assert len(seen.sample.readings) == 5
    assert seen.errors["engine_5"].kind is ErrorKind.TIMEOUT


def test_sample_without_engines_is_empty() -> None:
    seen = scrape([], now=lambda: 5.0, seconds=1.0)
    assert (seen.sample.engines, seen.sample.readings) == ((), ())


def test_unexpected_errors_while_reading_metrics_are_raised() -> None:
    class Broken(FakeEngines):
        def metrics(self, engine: str) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        scrape([ScrapeTarget("one", "http://one", Broken())], now=lambda: 5.0, seconds=1.0)


def test_fake_engine_raises_injected_errors() -> None:
    adapter, targets = fleet(one=FakeEngine(metrics="sglang:num_queue_reqs 3\n"))
    adapter.next("metrics", Fail(ErrorKind.TIMEOUT))
    assert scrape(targets, now=lambda: 5.0, seconds=1.0).errors["one"].kind is ErrorKind.TIMEOUT
    assert not scrape(targets, now=lambda: 5.0, seconds=1.0).errors
