"""Parse autoscaler settings. Missing keys take their default values."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from berth.core.problems import VALUE_MAX, Problem, format_value, suggest
from projects.engine.replicas.config import (
    AutoscalerConfig,
    ScaleInPolicy,
    ScaleOutPolicy,
)

Policy = TypeVar("Policy", ScaleOutPolicy, ScaleInPolicy)
POLICIES = ("scale_out_policy", "scale_in_policy")
SHARED_DURATION = "condition_duration_secs"
MAX_SECONDS = 7 * 24 * 3600.0
MAX_ENGINES = 10_000


@dataclass(frozen=True, slots=True)
class FieldRule:
    """Validation rule for a field. `allowed` describes the valid values in error messages."""

    is_valid: Callable[[Any], bool]
    allowed: str


def _number_rule(minimum: float, maximum: float, allowed: str, *, above: bool = False) -> FieldRule:
    def is_valid(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return False
        return (value > minimum if above else value >= minimum) and value <= maximum

    return FieldRule(is_valid, allowed)


def _integer_rule(minimum: int, maximum: int) -> FieldRule:
    def is_valid(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum

    return FieldRule(is_valid, f"a whole number from {minimum} to {maximum}")


FRACTION = _number_rule(0, 1, "a number from 0 to 1")
SECONDS = _number_rule(0, MAX_SECONDS, "a number of seconds from 0 to 604800")
INTERVAL = _number_rule(0, MAX_SECONDS, "a number of seconds above 0 and up to 604800", above=True)
RULES: Mapping[str, FieldRule] = {
    "enabled": FieldRule(lambda value: isinstance(value, bool), "true or false"),
    "min_engines": _integer_rule(0, MAX_ENGINES),
    "max_engines": _integer_rule(1, MAX_ENGINES),
    "scale_out_cooldown_secs": SECONDS,
    "scale_in_cooldown_secs": SECONDS,
    "metrics_interval_secs": INTERVAL,
    "evaluation_interval_secs": INTERVAL,
    "condition_window_secs": INTERVAL,
    "rollout_service_url": FieldRule(lambda value: isinstance(value, str), "a URL"),
    "token_usage_threshold": FRACTION,
    "queue_depth_per_engine": _integer_rule(0, 1_000_000),
    "queue_time_p95_threshold": SECONDS,
    "ttft_p95_threshold": SECONDS,
    "queue_depth_threshold": _integer_rule(0, 1_000_000),
    "throughput_variance_threshold": _number_rule(0, 1_000_000, "a number from 0"),
    "max_delta": _integer_rule(1, MAX_ENGINES),
    "projected_usage_max": FRACTION,
    SHARED_DURATION: SECONDS,
}


def parse(document: Any) -> tuple[AutoscalerConfig, tuple[Problem, ...]]:
    """Return the settings and all problems. Invalid fields take their default values."""
    if document is None:
        return AutoscalerConfig(), ()
    if not isinstance(document, Mapping):
        return AutoscalerConfig(), (Problem("", "must be a mapping", format_value(document)),)
    problems: list[Problem] = []
    direct_values = {key: value for key, value in document.items() if key not in POLICIES}
    values = _valid_values(direct_values, _field_names(AutoscalerConfig) - set(POLICIES), "", problems)
    config = replace(AutoscalerConfig(), **values)
    scale_out = _parse_policy(document, "scale_out_policy", ScaleOutPolicy(), problems)
    scale_in = _parse_policy(document, "scale_in_policy", ScaleInPolicy(), problems)
    config = replace(config, scale_out_policy=scale_out, scale_in_policy=scale_in)
    return config, (*problems, *_contradiction_problems(config))


def to_document(config: AutoscalerConfig) -> dict[str, Any]:
    """Convert the settings to a document that `parse` converts back to the same settings."""
    names = _field_names(AutoscalerConfig) - set(POLICIES)
    document: dict[str, Any] = {name: getattr(config, name) for name in sorted(names)}
    for name in POLICIES:
        policy = getattr(config, name)
        values = {field: getattr(policy, field) for field in sorted(_field_names(type(policy)))}
        document[name] = {**values, "durations": dict(policy.durations)}
    return document


def _parse_policy(document: Mapping[str, Any], name: str, policy: Policy, problems: list[Problem]) -> Policy:
    value = document.get(name)
    if value is None:
        return policy
    if not isinstance(value, Mapping):
        problems.append(Problem(name, "must be a mapping", format_value(value)))
        return policy
    allowed_keys = _field_names(type(policy)) | {SHARED_DURATION}
    direct_values = {key: value for key, value in value.items() if key != "durations"}
    values = _valid_values(direct_values, allowed_keys, name, problems)
    durations = _condition_durations(
        value, name, policy.durations, values.pop(SHARED_DURATION, None), problems
    )
    return replace(policy, **values, durations=durations)


def _condition_durations(
    value: Mapping[str, Any],
    policy: str,
    defaults: Mapping[str, float],
    shared_seconds: float | None,
    problems: list[Problem],
) -> Mapping[str, float]:
    """Return the duration of each condition, from one shared value or one value per condition."""
    durations = value.get("durations")
    if durations is None:
        return defaults if shared_seconds is None else dict.fromkeys(defaults, shared_seconds)
    path = f"{policy}.durations"
    if not isinstance(durations, Mapping):
        problems.append(Problem(path, "must map conditions to seconds", format_value(durations)))
        return defaults
    if shared_seconds is not None:
        problems.append(Problem(path, f"cannot be combined with {SHARED_DURATION}"))
        return defaults
    rules = dict.fromkeys(defaults, SECONDS)
    return {**defaults, **_valid_values(durations, set(rules), path, problems, rules)}


def _valid_values(
    values: Mapping[Any, Any],
    allowed_keys: Collection[str],
    path: str,
    problems: list[Problem],
    rules: Mapping[str, FieldRule] = RULES,
) -> dict[str, Any]:
    """Return the valid values, and append a problem for each invalid one. Null counts as missing."""
    valid: dict[str, Any] = {}
    for key, value in values.items():
        field_path = f"{path}.{key}" if path else str(key)
        if key not in allowed_keys:
            allowed = suggest(str(key), sorted(allowed_keys))
            problems.append(Problem(field_path[:VALUE_MAX], "unknown field", format_value(key), allowed))
        elif value is not None and not rules[key].is_valid(value):
            problems.append(Problem(field_path, "is invalid", format_value(value), rules[key].allowed))
        elif value is not None:
            valid[key] = value
    return valid


def _field_names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)} - {"durations"}


def _contradiction_problems(config: AutoscalerConfig) -> list[Problem]:
    """Return problems with combinations of individually valid fields."""
    problems: list[Problem] = []
    if config.min_engines > config.max_engines:
        allowed = f"at least min_engines, {config.min_engines}"
        problems.append(
            Problem("max_engines", "is less than min_engines", format_value(config.max_engines), allowed)
        )
    if config.condition_window_secs < config.metrics_interval_secs:
        allowed = f"at least metrics_interval_secs, {config.metrics_interval_secs:g}"
        value = format_value(config.condition_window_secs)
        problems.append(
            Problem("condition_window_secs", "is shorter than one metrics interval", value, allowed)
        )
    return problems
