"""Parse autoscaler settings; missing keys keep their defaults."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from berth.core.problems import SHOWN, Problem, shown, suggestion
from projects.engine.replicas.config import (
    AutoscalerConfig,
    ScaleInPolicy,
    ScaleOutPolicy,
)

Policy = TypeVar("Policy", ScaleOutPolicy, ScaleInPolicy)
POLICIES = ("scale_out_policy", "scale_in_policy")
ONE_FOR_ALL = "condition_duration_secs"
LONGEST = 7 * 24 * 3600.0
MOST_ENGINES = 10_000


@dataclass(frozen=True, slots=True)
class Rule:
    """What a field may hold; `allowed` says so in words."""

    fits: Callable[[Any], bool]
    allowed: str


def _number(least: float, most: float, allowed: str, *, above: bool = False) -> Rule:
    def fits(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return False
        return (value > least if above else value >= least) and value <= most

    return Rule(fits, allowed)


def _whole(least: int, most: int) -> Rule:
    def fits(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return Rule(fits, f"a whole number from {least} to {most}")


PART = _number(0, 1, "a number from 0 to 1")
SECONDS = _number(0, LONGEST, "seconds, a number from 0 to 604800")
INTERVAL = _number(0, LONGEST, "seconds, a number above 0 and up to 604800", above=True)
RULES: Mapping[str, Rule] = {
    "enabled": Rule(lambda value: isinstance(value, bool), "true or false"),
    "min_engines": _whole(0, MOST_ENGINES),
    "max_engines": _whole(1, MOST_ENGINES),
    "scale_out_cooldown_secs": SECONDS,
    "scale_in_cooldown_secs": SECONDS,
    "metrics_interval_secs": INTERVAL,
    "evaluation_interval_secs": INTERVAL,
    "condition_window_secs": INTERVAL,
    "rollout_service_url": Rule(lambda value: isinstance(value, str), "a URL"),
    "token_usage_threshold": PART,
    "queue_depth_per_engine": _whole(0, 1_000_000),
    "queue_time_p95_threshold": SECONDS,
    "ttft_p95_threshold": SECONDS,
    "queue_depth_threshold": _whole(0, 1_000_000),
    "throughput_variance_threshold": _number(0, 1_000_000, "a number from 0"),
    "max_delta": _whole(1, MOST_ENGINES),
    "projected_usage_max": PART,
    ONE_FOR_ALL: SECONDS,
}


def parsed(document: Any) -> tuple[AutoscalerConfig, tuple[Problem, ...]]:
    """The settings, and everything that is wrong with them; where something is, its default stands."""
    if document is None:
        return AutoscalerConfig(), ()
    if not isinstance(document, Mapping):
        return AutoscalerConfig(), (Problem("", "settings are fields with values", shown(document)),)
    problems: list[Problem] = []
    plain = {key: value for key, value in document.items() if key not in POLICIES}
    values = _checked(plain, _names(AutoscalerConfig) - set(POLICIES), "", problems)
    config = replace(AutoscalerConfig(), **values)
    out = _policy(document, "scale_out_policy", ScaleOutPolicy(), problems)
    into = _policy(document, "scale_in_policy", ScaleInPolicy(), problems)
    config = replace(config, scale_out_policy=out, scale_in_policy=into)
    return config, (*problems, *_together(config))


def written(config: AutoscalerConfig) -> dict[str, Any]:
    """As a document that reads as the same settings."""
    names = _names(AutoscalerConfig) - set(POLICIES)
    document: dict[str, Any] = {name: getattr(config, name) for name in sorted(names)}
    for name in POLICIES:
        policy = getattr(config, name)
        values = {field: getattr(policy, field) for field in sorted(_names(type(policy)))}
        document[name] = {**values, "durations": dict(policy.durations)}
    return document


def _policy(document: Mapping[str, Any], name: str, policy: Policy, problems: list[Problem]) -> Policy:
    given = document.get(name)
    if given is None:
        return policy
    if not isinstance(given, Mapping):
        problems.append(Problem(name, "a policy is fields with values", shown(given)))
        return policy
    known = _names(type(policy)) | {ONE_FOR_ALL}
    plain = {key: value for key, value in given.items() if key != "durations"}
    values = _checked(plain, known, name, problems)
    durations = _durations(given, name, policy.durations, values.pop(ONE_FOR_ALL, None), problems)
    return replace(policy, **values, durations=durations)


def _durations(
    given: Mapping[str, Any],
    policy: str,
    defaults: Mapping[str, float],
    for_all: float | None,
    problems: list[Problem],
) -> Mapping[str, float]:
    """One for all conditions of the policy, or one for each that is named."""
    each = given.get("durations")
    if each is None:
        return defaults if for_all is None else dict.fromkeys(defaults, for_all)
    path = f"{policy}.durations"
    if not isinstance(each, Mapping):
        problems.append(Problem(path, "durations are conditions with seconds", shown(each)))
        return defaults
    if for_all is not None:
        problems.append(Problem(path, f"give either this or {ONE_FOR_ALL}, not both"))
        return defaults
    rules = dict.fromkeys(defaults, SECONDS)
    return {**defaults, **_checked(each, set(rules), path, problems, rules)}


def _checked(
    values: Mapping[Any, Any],
    known: Collection[str],
    path: str,
    problems: list[Problem],
    rules: Mapping[str, Rule] = RULES,
) -> dict[str, Any]:
    """The values that may be used as they are. A null is a missing value."""
    good: dict[str, Any] = {}
    for key, value in values.items():
        place = f"{path}.{key}" if path else str(key)
        if key not in known:
            allowed = suggestion(str(key), sorted(known))
            problems.append(Problem(place[:SHOWN], "unknown field", shown(key), allowed))
        elif value is not None and not rules[key].fits(value):
            problems.append(Problem(place, "this value does not fit", shown(value), rules[key].allowed))
        elif value is not None:
            good[key] = value
    return good


def _names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)} - {"durations"}


def _together(config: AutoscalerConfig) -> list[Problem]:
    """What is wrong between fields that are right by themselves."""
    found: list[Problem] = []
    if config.min_engines > config.max_engines:
        allowed = f"at least min_engines, {config.min_engines}"
        found.append(Problem("max_engines", "fewer than min_engines", shown(config.max_engines), allowed))
    if config.condition_window_secs < config.metrics_interval_secs:
        allowed = f"at least metrics_interval_secs, {config.metrics_interval_secs:g}"
        given = shown(config.condition_window_secs)
        found.append(Problem("condition_window_secs", "shorter than one interval", given, allowed))
    return found
