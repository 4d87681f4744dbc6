"""Decide whether a failed run restarts, and how."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from berth.core.spec import RetryRule
from berth.core.spec.sections.retry import BACKOFF_MAX, NOT_POD_FAILURES
from berth.core.wording.retry_counts import format_failure
from berth.core.wording.words import format_count


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of a run.

    `kind` is an exit code, a signal or a reason, as in retry rules. `role` and `node` are set if a single pod
    failed. `of_pod` is True if rules for `pod_failed` also match.
    """

    kind: str
    role: str = ""
    node: int | None = None
    of_pod: bool = False


@dataclass(frozen=True, slots=True)
class RetryState:
    """Retry rules and previous restarts of a workload.

    `counts` is keyed by failure kind. `memory` is each role's memory in MiB.
    """

    rules: Sequence[RetryRule] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Retry:
    """Restart after a failure.

    `number` counts the restarts under the same rule, including this one. `backoff` is None for the default.
    `memory` is the new memory of the failed role in MiB, or None. If `other_node` is set, the restart avoids
    the node where the run failed.
    """

    failure: Failure
    number: int
    limit: int | None = None
    backoff: int | None = None
    other_node: bool = False
    memory: int | None = None

    @property
    def sentence(self) -> str:
        limit = "" if self.limit is None else f" of at most {self.limit}"
        changes = f" with {self.memory} MiB of memory for role {self.failure.role}" if self.memory else ""
        changes += " on another node" if self.other_node else ""
        return f"Restarting the gang{changes}: restart {self.number}{limit}."


@dataclass(frozen=True, slots=True)
class NoRetry:
    """Decision not to restart. `sentence` names the rule that decided, or is empty if no rule applies."""

    sentence: str = ""


def decide_retry(facts: RetryState, failure: Failure) -> Retry | NoRetry:
    """Return the decision of the first rule that matches the failure. Without such a rule, the run is not
    restarted.
    """
    for number, rule in enumerate(facts.rules):
        if rule.matches(failure.kind, of_pod=failure.of_pod):
            return _apply_rule(facts, failure, number)
    return NoRetry()


def _apply_rule(facts: RetryState, failure: Failure, number: int) -> Retry | NoRetry:
    rule, kind = facts.rules[number], format_failure(failure.kind)
    if rule.action == "fail":
        return NoRetry(f"A retry rule ends the workload after {kind}.")
    restarts = sum(count for each, count in facts.counts.items() if _rule_index(facts.rules, each) == number)
    if rule.max is not None and restarts >= rule.max:
        return NoRetry(f"No restart is left: the rule for {kind} allows {format_count(rule.max, 'restart')}.")
    memory = _larger_memory(rule, facts.memory.get(failure.role, 0))
    if memory == 0:
        return NoRetry(f"Role {failure.role} already has its maximum of {rule.memory_max_mib} MiB of memory.")
    return Retry(
        failure=failure,
        number=restarts + 1,
        limit=rule.max,
        backoff=None if rule.backoff is None else min(BACKOFF_MAX, rule.backoff << min(restarts, 16)),
        other_node=rule.other_node and failure.node is not None,
        memory=memory,
    )


def _rule_index(rules: Sequence[RetryRule], kind: str) -> int | None:
    """Return the index of the first matching rule, or None.

    A `pod_failed` rule also matches failed image pulls, unless an earlier rule lists `image_pull`.
    """
    of_pod = kind not in NOT_POD_FAILURES
    return next((number for number, rule in enumerate(rules) if rule.matches(kind, of_pod=of_pod)), None)


def _larger_memory(rule: RetryRule, memory: int) -> int | None:
    """Return the memory in MiB for the next run, 0 if no increase is possible, or None if the rule adds no
    memory.
    """
    if rule.memory_factor is None or rule.memory_max_mib is None:
        return None
    larger = min(rule.memory_max_mib, math.ceil(memory * rule.memory_factor))
    return larger if larger > memory else 0
