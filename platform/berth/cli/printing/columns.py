"""Table columns for each object type."""

from datetime import datetime
from typing import Any

from berth.cli.printing.output import Column
from berth.cli.printing.text import format_age, format_duration, format_number, format_short_time, format_time

STYLES = {
    "running": "green", "completed": "green dim", "ready": "green", "succeeded": "green dim",
    "failed": "red", "lost": "red", "pending": "yellow", "starting": "cyan", "reserved": "cyan",
    "stopping": "magenta", "suspended": "blue", "cancelled": "dim", "stopped": "dim", "draining": "magenta",
    "cordoned": "yellow", "booting": "cyan", "requested": "cyan",
}  # fmt: skip


def phase_style(item: Any) -> str:
    return STYLES.get(str(getattr(item, "phase", "") or getattr(item, "state", "")), "")


def workload_columns(now: datetime) -> list[Column]:
    return [
        Column("NAME", lambda w: w.name),
        Column("PROJECT", lambda w: w.project),
        Column("PHASE", lambda w: w.phase, style=phase_style),
        Column(
            "GPUS", lambda w: f"{format_number(w.gpus.now)}/{format_number(w.gpus.requested)}", right=True
        ),
        Column(
            "PODS",
            lambda w: f"{format_number(w.pods.running)}/{format_number(w.pods.maximum)}",
            right=True,
            wide=True,
        ),
        Column("PRIORITY", lambda w: str(w.priority), right=True, wide=True),
        Column("KIND", lambda w: w.kind, wide=True),
        Column("POOL", lambda w: w.pool or ",".join(w.pools), optional=True),
        Column("RUN", lambda w: str(w.run), right=True, wide=True, optional=True),
        Column("EVICTIONS", lambda w: format_number(w.preemptions), right=True, wide=True),
        Column("COST", lambda w: format_cost(w.cost) or "-", right=True, wide=True),
        Column("SINCE", lambda w: format_age(w.since, now), right=True, optional=True),
        Column("AGE", lambda w: format_age(w.submitted_at, now), right=True, optional=True),
        Column("BY", lambda w: w.submitted_by or "-", wide=True, optional=True),
        Column("ID", lambda w: w.id, wide=True),
        Column("REASON", lambda w: ": ".join(part for part in (w.reason, w.message) if part), flexible=True),
    ]


def pod_columns(now: datetime) -> list[Column]:
    return [
        Column("POD", lambda p: p.short_name),
        Column("RUN", lambda p: str(p.run), right=True),
        Column("STATE", lambda p: p.state, style=phase_style),
        Column("NODE", lambda p: p.node or "-"),
        Column("DEVICES", lambda p: ",".join(map(str, p.devices)) or "-", optional=True),
        Column("RANK", lambda p: str(p.rank), right=True, optional=True),
        Column("EXIT", format_exit, right=True),
        Column("SINCE", lambda p: format_age(p.since, now), right=True),
        Column("LIMITS", lambda p: format_limits(p.limits) or "-", wide=True),
        Column(
            "PEAK MIB",
            lambda p: "-" if p.memory_peak_mib is None else str(p.memory_peak_mib),
            right=True,
            wide=True,
        ),
        Column("MESSAGE", lambda p: p.message, flexible=True),
    ]


def format_exit(pod: Any) -> str:
    """Return the signal that killed the pod, or else the exit code. Return "-" if there is neither."""
    if pod.signal is not None:
        return f"signal {pod.signal}"
    return "-" if pod.exit_code is None else str(pod.exit_code)


def format_limits(limits: Any) -> str:
    """Format a pod's limits, such as "4096 MiB (document)". Return "" for a pod without limits."""
    texts = [f"{limits.memory_mib:,} MiB ({limits.memory_source})"] if limits.memory_mib else []
    texts += [f"{format_number(limits.cpu)} CPU ({limits.cpu_source})"] if limits.cpu else []
    return ", ".join(texts)


def event_columns() -> list[Column]:
    return [
        Column("TIME", lambda e: format_time(e.at), brief=lambda e: format_short_time(e.at)),
        Column("KIND", lambda e: e.kind),
        Column("SUBJECT", lambda e: e.subject),
        Column("BY", lambda e: e.actor),
        Column("MESSAGE", lambda e: e.message, flexible=True),
    ]


def eviction_columns() -> list[Column]:
    return [
        Column("TIME", lambda e: format_time(e.at), brief=lambda e: format_short_time(e.at)),
        Column("KIND", lambda e: e.kind),
        Column("VICTIM", lambda e: e.victim),
        Column("PREEMPTOR", lambda e: e.preemptor or "-"),
        Column("GPUS", lambda e: format_number(e.gpus), right=True),
        Column("POOL", lambda e: e.pool, wide=True),
        Column("GPU TIME LOST", lambda e: format_duration(e.lost_gpu_seconds), right=True, wide=True),
        Column("CYCLE", lambda e: str(e.cycle or "-"), right=True, wide=True),
        Column("ID", lambda e: str(e.id), right=True, wide=True),
        Column("RULE", lambda e: e.rule, flexible=True),
    ]


def project_pair_columns() -> list[Column]:
    return [
        Column("VICTIM PROJECT", lambda p: p.victim_project),
        Column("PREEMPTOR PROJECT", lambda p: p.preemptor_project or "-"),
        Column("EVICTIONS", lambda p: format_number(p.evictions), right=True),
        Column("GPUS", lambda p: format_number(p.gpus), right=True),
        Column("GPU-HOURS LOST", lambda p: f"{p.lost_gpu_seconds / 3600:,.1f}", right=True),
    ]


def format_cost(cost: Any) -> str:
    """Format a cost, such as "12.40 USD". Return an empty string if the cost is unknown."""
    return "" if cost is None else f"{cost.amount:,.2f} {cost.currency}"
