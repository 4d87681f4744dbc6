"""Retry rules: what happens after each kind of failure."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from berth.core.problems import Problem, format_value, suggest
from berth.core.spec.roles import Document, RoleSpec, Seconds
from berth.core.spec.values.quantities import Mebibytes
from berth.core.values.signals import SHELL_OFFSET, SIGNALS, full_signal_name

POD_FAILED, COMPLETED = "pod_failed", "completed"
OUT_OF_MEMORY, WORKSPACE_FULL, START_FAILED = "out_of_memory", "workspace_full", "start_failed"
IMAGE_PULL, NODE_LOST, TIMEOUT, START_TIMEOUT = "image_pull", "node_lost", "timeout", "start_timeout"
REASONS = (
    OUT_OF_MEMORY, NODE_LOST, IMAGE_PULL, TIMEOUT, START_TIMEOUT, START_FAILED, WORKSPACE_FULL, POD_FAILED,
    COMPLETED,
)  # fmt: skip
# Failures that `pod_failed` does not cover.
NOT_POD_FAILURES = frozenset({NODE_LOST, TIMEOUT, START_TIMEOUT, COMPLETED})
WITHOUT_NODE = (TIMEOUT, COMPLETED)  # failures that are not tied to a node, so `other_node` has no effect
INDEPENDENT_OF_MEMORY = (*NOT_POD_FAILURES, IMAGE_PULL, START_FAILED, WORKSPACE_FULL)
EXIT_CODE_MAX, BACKOFF_MAX, RULES_MAX, RESTARTS_MAX = 255, 3600, 32, 1_000_000
ALLOWED = f"an exit code from 1 to {EXIT_CODE_MAX}, a signal such as SIGKILL, or {', '.join(REASONS)}"


def parse_failure(value: object) -> int | str:
    """Parse an exit code, a signal or a reason. Signal names are expanded, for example to SIGKILL."""
    if isinstance(value, int) and not isinstance(value, bool):
        if 1 <= value <= EXIT_CODE_MAX:
            return value
        raise _value_error("is not an exit code that indicates failure", f"1 to {EXIT_CODE_MAX}")
    if not isinstance(value, str):
        raise _value_error("is not a valid kind of failure", ALLOWED)
    if value in REASONS:
        return value
    if full_signal_name(value) in SIGNALS:
        return full_signal_name(value)
    names = [*REASONS, *SIGNALS, *(name.removeprefix("SIG") for name in SIGNALS)]
    close = suggest(value, names)
    raise _value_error("is not a valid kind of failure", close if close != ", ".join(names) else ALLOWED)


def _value_error(message: str, allowed: str) -> PydanticCustomError:
    return PydanticCustomError("failure", "{message}", {"message": message, "allowed": allowed})


FailureKind = Annotated[
    int | str,
    PlainValidator(parse_failure),
    WithJsonSchema({"type": ["integer", "string"], "description": ALLOWED, "examples": ["out_of_memory"]}),
]


class RetryRule(Document):
    """Retry rule for the failures in `on`. The first matching rule applies.

    `max` limits the restarts. `backoff` doubles with each restart, up to an hour. `other_node` avoids the
    node of the failure. `memory_factor` multiplies the memory of the failed role, up to `memory_max_mib`.
    """

    on: Annotated[tuple[FailureKind, ...], Field(min_length=1, max_length=64, strict=False)]
    action: Literal["restart", "fail"] = "restart"
    max: Annotated[int, Field(ge=1, le=RESTARTS_MAX)] | None = None
    backoff: Annotated[Seconds, Field(ge=1, le=BACKOFF_MAX)] | None = None
    other_node: bool = False
    memory_factor: Annotated[float, Field(gt=1, le=100, strict=True)] | None = None
    memory_max_mib: Mebibytes | None = None

    def matches(self, kind: str, *, of_pod: bool) -> bool:
        """Return whether the rule lists the failure, or lists `pod_failed` and a pod has failed."""
        return (of_pod and POD_FAILED in self.on) or _exit_code_or_reason(kind) in {
            _exit_code_or_reason(each) for each in self.on
        }


RetryRules = Annotated[tuple[RetryRule, ...], Field(max_length=RULES_MAX, strict=False)]


def _exit_code_or_reason(kind: int | str) -> int | str:
    if isinstance(kind, str) and kind in SIGNALS:
        return SHELL_OFFSET + SIGNALS[kind]
    return int(kind) if isinstance(kind, str) and kind.isdigit() else kind


def retry_problems(rules: Sequence[RetryRule], roles: Sequence[RoleSpec]) -> Iterator[Problem]:
    """Yield problems for rules that can never match and settings that have no effect."""
    seen: dict[int | str, str] = {}  # document path of each failure
    for number, rule in enumerate(rules):
        path = f"retry[{number}]"
        yield from _order_problems(path, rule, seen)
        if rule.action == "fail":
            yield from _fail_action_problems(path, rule)
        if rule.other_node and (kinds := [kind for kind in rule.on if kind in WITHOUT_NODE]):
            message = f"has no effect after {kinds[0]}, which has no single node"
            yield Problem(f"{path}.other_node", message, "True", f"a rule without {kinds[0]}")
        yield from _memory_problems(path, rule, roles)


def _order_problems(path: str, rule: RetryRule, seen: dict[int | str, str]) -> Iterator[Problem]:
    for place, kind in enumerate(rule.on):
        where, code = f"{path}.on[{place}]", _exit_code_or_reason(kind)
        earlier = seen.get(code) or (seen.get(POD_FAILED) if kind not in NOT_POD_FAILURES else None)
        if earlier is not None:
            message = f"is already covered by {earlier}"
            yield Problem(where, message, format_value(kind), "each failure once; general rules last")
        seen.setdefault(code, where)


def _fail_action_problems(path: str, rule: RetryRule) -> Iterator[Problem]:
    if COMPLETED in rule.on:
        yield Problem(f"{path}.action", "cannot be used with completed", "fail", "restart")
    for key in ("max", "backoff", "other_node", "memory_factor", "memory_max_mib"):
        if value := getattr(rule, key):
            message = "has no effect with action fail"
            yield Problem(f"{path}.{key}", message, format_value(value), "action restart, or no such key")


def _memory_problems(path: str, rule: RetryRule, roles: Sequence[RoleSpec]) -> Iterator[Problem]:
    if rule.memory_factor is None:
        if rule.memory_max_mib is not None:
            received = f"{rule.memory_max_mib} without memory_factor"
            yield Problem(f"{path}.memory_max_mib", "has no effect", received, "memory_factor as well")
        return
    if rule.memory_max_mib is None:
        yield Problem(
            f"{path}.memory_max_mib", "is required with memory_factor", "", "an amount such as 64Gi"
        )
        return
    kinds = [str(kind) for kind in rule.on if kind in INDEPENDENT_OF_MEMORY]
    if kinds:
        message = f"has no effect after {kinds[0]}"
        yield Problem(f"{path}.memory_factor", message, f"{rule.memory_factor}", f"a rule without {kinds[0]}")
    for role in roles:
        memory = role_memory(role)
        if not memory and not role.idle:
            message = f"cannot increase the memory of role {role.name}, which requests none"
            allowed = "memory_mib or limit.memory_mib in every role"
            yield Problem(f"{path}.memory_factor", message, f"{rule.memory_factor}", allowed)
        elif memory > rule.memory_max_mib:
            message = f"is below the memory of role {role.name}"
            yield Problem(f"{path}.memory_max_mib", message, f"{rule.memory_max_mib}", f"at least {memory}")


def role_memory(role: RoleSpec) -> int:
    """Return a role's memory request or limit in MiB, whichever is larger."""
    return max(role.memory_mib, role.limit.memory_mib or 0)
