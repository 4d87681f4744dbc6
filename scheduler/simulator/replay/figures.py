"""Summarize a replay: queueing, utilization, fairness and eviction cost."""

from collections.abc import Mapping, Sequence
from typing import Any

from scheduler.simulator.replay.records import JobRecord, Records, integrate

FORMAT = "berth.replay/1"
HOUR = 3600


def summary_figures(records: Records, until: int) -> dict[str, Any]:
    """Return the summary figures.

    `queueing` is the total pending time, including the time that workloads were pending after evictions.
    """
    records.close(until)
    trace, jobs = records.trace, list(records.jobs.values())
    first, last = trace.start_time, max((w.submitted for w in trace.arrivals), default=trace.start_time)
    last = until if last == first else last  # if all jobs arrive at the same time, measure until the end
    span = max(1, last - first)
    gpu_seconds = {
        name: integrate(account.allocated, first, last) for name, account in records.accounts.items()
    }
    started = [job.first_start - job.submitted for job in jobs if job.first_start is not None]
    return {
        "format": FORMAT,
        "trace": trace.name,
        "cluster": {"nodes": len(trace.cluster.nodes), "gpus": trace.gpus},
        "jobs": {
            "arrived": len(jobs),
            "completed": sum(job.ended is not None for job in jobs),
            "never_started": sum(job.first_start is None for job in jobs),
        },
        "seconds": span,
        "queueing": summarize_durations([job.pending_seconds for job in jobs]),
        "until_first_start": summarize_durations(started),
        "utilization": round(sum(gpu_seconds.values()) / (trace.gpus * span), 4) if trace.gpus else 0.0,
        "evictions": dict(sorted((str(kind), count) for kind, count in records.evictions.items())),
        "lost_gpu_hours": round(sum(records.lost_gpu_seconds_by_project.values()) / HOUR, 1),
        "projects": _project_figures(records, gpu_seconds, span),
    }


def summarize_durations(durations: Sequence[float]) -> dict[str, float]:
    """Return the average, median, 99th percentile and maximum of the durations in seconds."""
    if not durations:
        return {"average": 0.0, "p50": 0.0, "p99": 0.0, "longest": 0.0}
    ordered = sorted(durations)
    return {
        "average": round(sum(ordered) / len(ordered), 1),
        "p50": round(ordered[len(ordered) // 2], 1),
        "p99": round(ordered[int(len(ordered) * 0.99)], 1),
        "longest": round(ordered[-1], 1),
    }


def _project_figures(records: Records, gpu_seconds: Mapping[str, float], span: int) -> dict[str, Any]:
    total = sum(gpu_seconds.values()) or 1.0
    quotas = sum(account.quota or 0.0 for account in records.accounts.values()) or 1.0
    by_project: dict[str, list[JobRecord]] = {name: [] for name in records.accounts}
    for job in records.jobs.values():
        by_project[job.project].append(job)
    return {
        name: {
            "jobs": len(by_project[name]),
            "quota": account.quota,
            "gpus_held": round(gpu_seconds[name] / span, 1),
            "part_held": round(gpu_seconds[name] / total, 4),
            "part_of_quotas": None if account.quota is None else round(account.quota / quotas, 4),
            "queueing": summarize_durations([job.pending_seconds for job in by_project[name]]),
            "in_quota": summarize_durations([job.pending_seconds_in_quota for job in by_project[name]]),
            "evictions": records.evictions_by_project[name],
            "lost_gpu_hours": round(records.lost_gpu_seconds_by_project[name] / HOUR, 1),
        }
        for name, account in sorted(records.accounts.items())
    }
