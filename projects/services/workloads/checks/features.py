"""Check that a document's pools support the features that its pods require."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings

from berth.core.errors import Invalid
from berth.core.problems import Problem
from berth.core.spec import WorkloadSpec
from berth.core.values.durations import format_duration
from pools.models import NodePool
from pools.runtimes.capabilities import Capabilities, runtime_capabilities


@dataclass(frozen=True, slots=True)
class RequiredFeature:
    """Feature that a document requires. `missing` completes the error message "its runtime ..."."""

    path: str
    received: str
    is_supported: Callable[[Capabilities], bool]
    missing: str


def pools_with_features(spec: WorkloadSpec, pools: Sequence[str], rows: Mapping[str, NodePool]) -> list[str]:
    """Return the pools in `rows` whose runtimes have all required features.

    Raises Invalid if there is none, or if the document lists a pool that lacks a feature.
    """
    _check_keep_failed_pod(spec)
    accepting = list(pools)
    for feature in _required_features(spec):
        rejecting = [
            name for name in accepting
            if not feature.is_supported(runtime_capabilities(rows[name].runtime))
        ]  # fmt: skip
        accepting = [name for name in accepting if name not in rejecting]
        if rejecting and (not accepting or set(rejecting) & set(spec.pools)):
            message = f"cannot be used in pool {rejecting[0]}: its runtime {feature.missing}"
            allowed = f"pools: {', '.join(accepting)}" if accepting else "a document without it"
            raise Invalid([Problem(feature.path, message, feature.received, allowed)])
    return accepting


def _check_keep_failed_pod(spec: WorkloadSpec) -> None:
    seconds, limit = spec.keep_failed_pod, settings.BERTH_KEEP_FAILED_POD_SECONDS
    if seconds is not None and seconds > limit:
        message = "is more than this installation allows" if limit else "is disabled on this installation"
        allowed = f"at most {format_duration(limit)}" if limit else "a document without it"
        raise Invalid([Problem("keep_failed_pod", message, format_duration(seconds), allowed)])


def _required_features(spec: WorkloadSpec) -> Iterator[RequiredFeature]:
    for number, rule in enumerate(spec.retry):
        if rule.memory_factor is not None:
            path = f"retry[{number}].memory_factor"
            yield RequiredFeature(
                path, f"{rule.memory_factor}", lambda each: each.enforces_limits, "does not limit memory"
            )
    if spec.preemption is not None:
        yield RequiredFeature(
            "preemption", spec.preemption.signal, lambda each: each.sends_notices,
            "cannot send a signal before SIGTERM",
        )  # fmt: skip
