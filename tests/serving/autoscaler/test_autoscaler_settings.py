"""Tests for autoscaler settings: the documented YAML, defaults and errors."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from projects.engine.replicas.config import AutoscalerConfig, ScaleInPolicy, ScaleOutPolicy
from projects.engine.replicas.document import parse, to_document

COMPLETE_DOCUMENT = """
enabled: true
min_engines: 2
max_engines: 16
scale_out_cooldown_secs: 60.0
scale_in_cooldown_secs: 300.0
metrics_interval_secs: 10.0
evaluation_interval_secs: 30.0
condition_window_secs: 60.0
rollout_service_url: "http://localhost:8000/rollout"
scale_out_policy:
  token_usage_threshold: 0.85
  queue_depth_per_engine: 10
  queue_time_p95_threshold: 5.0
  ttft_p95_threshold: 10.0
  condition_duration_secs: 30.0
  max_delta: 4
scale_in_policy:
  token_usage_threshold: 0.3
  queue_depth_threshold: 0
  throughput_variance_threshold: 0.1
  condition_duration_secs: 120.0
  max_delta: 1
  projected_usage_max: 0.5
"""


@pytest.mark.shows("RLX-63", "RLX-87", "RLX-88", "RLX-89", "RLX-92")
def test_complete_settings_document_is_parsed() -> None:
    config, problems = parse(yaml.safe_load(COMPLETE_DOCUMENT))
    assert problems == ()
    assert (config.min_engines, config.max_engines) == (2, 16)
    assert set(config.scale_out_policy.durations.values()) == {30.0}
    assert set(config.scale_in_policy.durations.values()) == {120.0}


@pytest.mark.shows("RLX-87", "RLX-88", "RLX-89")
def test_empty_settings_have_the_specified_defaults() -> None:
    config, problems = parse({})
    assert problems == ()
    assert config == AutoscalerConfig(
        True, 1, 32, 60.0, 300.0, 10.0, 30.0, 60.0, "http://localhost:8000/rollout",
        ScaleOutPolicy(0.85, 10, 5.0, 10.0, 4), ScaleInPolicy(0.3, 0, 0.1, 1, 0.5),
    )  # fmt: skip
    assert dict(config.scale_out_policy.durations) == {
        "token_usage_high": 30, "queue_backlog": 20, "queue_latency_high": 15, "ttft_high": 15,
    }  # fmt: skip
    assert dict(config.scale_in_policy.durations) == {
        "token_usage_low": 120, "no_queue": 120, "throughput_stable": 60,
    }  # fmt: skip


@pytest.mark.shows("RLX-90")
def test_partial_settings_document_keeps_other_defaults() -> None:
    config, problems = parse(yaml.safe_load("scale_out_policy: {max_delta: 2, token_usage_threshold: 0.8}"))
    assert problems == ()
    assert config == AutoscalerConfig(scale_out_policy=ScaleOutPolicy(token_usage_threshold=0.8, max_delta=2))


@pytest.mark.shows("RLX-91")
def test_rollout_service_url_can_be_set() -> None:
    assert parse({"rollout_service_url": "http://berth/x"})[0].rollout_service_url == "http://berth/x"


@pytest.mark.shows("RLX-92")
def test_autoscaler_condition_durations_may_be_set_individually() -> None:
    config, problems = parse({"scale_in_policy": {"durations": {"no_queue": 45}}})
    assert problems == ()
    assert dict(config.scale_in_policy.durations) == {
        "token_usage_low": 120, "no_queue": 45, "throughput_stable": 60,
    }  # fmt: skip


INVALID_DOCUMENTS: list[tuple[Any, str]] = [
    ({"max_engines": 0}, "max_engines"),
    ({"min_engines": True}, "min_engines"),
    ({"min_engines": 3, "max_engines": 2}, "max_engines"),
    ({"scale_out_cooldown_secs": -1}, "scale_out_cooldown_secs"),
    ({"metrics_interval_secs": 0}, "metrics_interval_secs"),
    ({"condition_window_secs": 5}, "condition_window_secs"),
    ({"max_engine": 4}, "max_engine"),
    ({"scale_in_policy": 7}, "scale_in_policy"),
    ({"scale_in_policy": {"projected_usage_max": 1.5}}, "scale_in_policy.projected_usage_max"),
    ({"scale_out_policy": {"token_usage_threshold": float("nan")}}, "scale_out_policy.token_usage_threshold"),
    ({"scale_out_policy": {"max_delta": "4"}}, "scale_out_policy.max_delta"),
    ({"scale_out_policy": {"durations": {"no_queue": 4}}}, "scale_out_policy.durations.no_queue"),
    ({"scale_out_policy": {"durations": 4}}, "scale_out_policy.durations"),
    (
        {"scale_in_policy": {"condition_duration_secs": 9, "durations": {"no_queue": 4}}},
        "scale_in_policy.durations",
    ),
    ([], ""),
]  # fmt: skip


@pytest.mark.parametrize(("document", "path"), INVALID_DOCUMENTS)
def test_error_for_an_invalid_value_names_its_field(document: Any, path: str) -> None:
    _, problems = parse(document)
    assert [problem.path for problem in problems] == [path]


def test_error_for_a_misspelled_field_suggests_the_nearest_field() -> None:
    _, (problem,) = parse({"max_engine": 4})
    assert (problem.received, problem.allowed) == ("'max_engine'", "Did you mean `max_engines`?")


def test_all_errors_in_autoscaler_settings_are_reported_together() -> None:
    _, problems = parse({"max_engines": 0, "enabled": "yes", "scale_out_policy": {"max_delta": 0}})
    assert [problem.path for problem in problems] == ["max_engines", "enabled", "scale_out_policy.max_delta"]


def test_written_settings_are_read_back_unchanged() -> None:
    config, _ = parse(yaml.safe_load(COMPLETE_DOCUMENT))
    assert parse(yaml.safe_load(yaml.safe_dump(to_document(config)))) == (config, ())


FIELDS = [
    *to_document(AutoscalerConfig()),
    *to_document(AutoscalerConfig())["scale_out_policy"],
    "no_queue",
    "x",
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda embedded_ipv4: (
        st.lists(embedded_ipv4, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS) | st.integers(), embedded_ipv4, max_size=5)
    ),
    max_leaves=8,
)


@given(ANYTHING)
def test_any_input_produces_valid_settings_or_an_error(document: Any) -> None:
    config, problems = parse(document)
    assert problems or parse(to_document(config)) == (config, ())
