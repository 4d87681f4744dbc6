"""Print the predicted effects of submitting or editing a workload."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from berth.cli.printing.columns import format_limits
from berth.cli.printing.explain import format_blocker_numbers, format_expected_start
from berth.cli.printing.text import format_time, print_message, printable
from berth.core.problems import Problem
from berth.core.wording.words import format_count

if TYPE_CHECKING:
    from berth.client.models.workloads import DryRun


def print_dry_run(result: "DryRun") -> None:
    for error in result.errors:
        problem = Problem(error.path, error.message, error.received, error.allowed)
        print_message(problem)
    if result.errors:
        return
    print(f"{printable((result.workload or {}).get('name', ''))}: {printable(_format_outcome(result))}")
    for decision in result.decisions:
        message = f": {decision['message']}" if decision.get("message") else ""
        print(printable(f"  {decision.get('kind', '')}{_format_pods_per_node(decision)}{message}"))
    for eviction in result.evictions:
        print(printable(f"  {eviction.get('kind', 'evict')}: {eviction.get('summary', '')}"))
        for line in eviction.get("lines") or ():
            print(f"    {printable(line)}")
    for blocker in result.blockers:
        print(f"  {printable(blocker.reason)}: {printable(blocker.message)}")
        if blocker.numbers:
            print(f"    {format_blocker_numbers(blocker.numbers)}")
    for limits in result.limits:
        if line := format_limits(limits):
            print(f"  limits of {printable(limits.role)} in {printable(limits.pool)}: {line}")
    for warning in result.warnings:
        print(f"  warning: {printable(warning)}")
    for line in _format_start_lines(result):
        print(f"  {printable(line)}")


def _format_start_lines(result: "DryRun") -> Iterator[str]:
    if result.queue_position_reason:
        yield f"Queue position {result.queue_position}: {result.queue_position_reason}."
    if line := format_expected_start(
        result.expected_start, result.expected_start_reason, result.expected_start_after
    ):
        yield line
    if result.may_change_at is not None:
        at = format_time(result.may_change_at)
        yield f"The prediction may change at {at}, when the restart delay of a pending workload ends."


def _format_outcome(result: "DryRun") -> str:
    if not result.nodes_to_boot:
        return result.outcome.replace("_", " ")
    verb = "has" if result.nodes_to_boot == 1 else "have"
    return f"would start after {format_count(result.nodes_to_boot, 'node')} {verb} booted"


def _format_pods_per_node(decision: dict[str, Any]) -> str:
    nodes = Counter(str(pod.get("node")) for pod in decision.get("pods") or () if isinstance(pod, dict))
    counts = ", ".join(f"{format_count(count, 'pod')} on {node}" for node, count in sorted(nodes.items()))
    return f" {counts}" if counts else ""
