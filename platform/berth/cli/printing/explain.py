"""Print blockers, fair shares, and the effects of quota changes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from berth.cli.printing.output import print_section
from berth.cli.printing.text import format_number, format_time, printable
from berth.core.wording.awaited import describe_workload_ends
from berth.core.wording.blocker_numbers import format_numbers

if TYPE_CHECKING:
    from berth.client.models.tenants import (
        ShareTrace,
    )
    from berth.client.models.workloads import AwaitedEnd

QUEUE_FIELDS = ("quota", "share", "allocated", "reserved", "requested", "limit")


def format_blocker_numbers(numbers: Mapping[str, Any]) -> str:
    """Format a blocker's numbers on one line, such as "requested 4 GPUs, free 0"."""
    return ", ".join(f"{printable(label)} {printable(text)}" for label, text in format_numbers(numbers))


def format_expected_start(at: datetime | None, reason: str, after: Sequence["AwaitedEnd"]) -> str:
    """Describe the expected start, the workloads that have to end first, and the assumptions.

    Return "" if neither a start time nor a reason is known.
    """
    if at is not None:
        ends = describe_workload_ends([(each.workload, format_time(each.end)) for each in after])
        sentence = f"Expected start: {format_time(at)}" + (f", {ends}." if ends else ".")
        return f"{sentence} The estimate holds {reason}." if reason else sentence
    return f"Expected start unknown: {reason}." if reason else ""


def format_queue_lines(queue: Any) -> Iterator[str]:
    """Yield lines with the project's and department's quota, share and allocation in the last cycle."""
    for kind in ("project", "department"):
        status = (queue or {}).get(kind)
        if isinstance(status, dict):
            amounts = ", ".join(
                f"{'fair share' if name == 'share' else name} {_format_gpus(status[name])}"
                for name in QUEUE_FIELDS
                if name in status
            )
            yield f"{kind} {status.get('name')}: {amounts} (GPUs in {status.get('pool')})"
            for line in _share_explanation(status):
                yield f"  {line}"


def _share_explanation(status: Mapping[str, Any]) -> Iterator[str]:
    """Explain the fair share of GPUs or, if there are no GPUs, of the other resources."""
    explanations = status.get("how") or {}
    requested = status.get("requested") or {}
    chosen = ["gpu"] if requested.get("gpu") else [name for name in explanations if requested.get(name)]
    for resource in chosen or ["gpu"]:
        yield from map(str, explanations.get(resource) or ())


def _format_gpus(amounts: Any) -> str:
    if not isinstance(amounts, dict):
        return "-"
    value = amounts.get("gpu")
    return "unlimited" if value is None else format_number(value)


UNITS = {"gpu": "GPUs", "cpu": "CPUs", "memory_mib": "memory"}


def print_shares(traces: Iterable["ShareTrace"]) -> None:
    for trace in traces:
        for section in trace.trace:
            queue = section.queue if section.queue == trace.pool else f"{section.queue} in pool {trace.pool}"
            print_section(printable(f"{section.name}: {UNITS[section.resource]} of {queue}"))
            for line in section.explanation:
                print(f"  {printable(line)}")
