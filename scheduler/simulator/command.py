"""Run a simulation for `berth simulate` and format the output."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from berth.core.wording.words import format_count
from scheduler.simulator.cycles import play_scenario, run_result
from scheduler.simulator.scenario.errors import ScenarioError
from scheduler.simulator.scenario.load import load

OK, BAD_FILE = 0, 2


def run(
    path: str | Path,
    cycles: int = 1,
    until_stable: bool = False,
    actions: Collection[str] | None = None,
    as_json: bool = False,
) -> tuple[int, str]:
    """Return exit status 0 and the result, or exit status 2 and a line about the first error in the file."""
    try:
        played = play_scenario(load(Path(path)), cycles, until_stable, actions)
    except ScenarioError as error:
        return BAD_FILE, str(error)
    result = run_result(played)
    return OK, json.dumps(result, indent=2) if as_json else format_result(
        result, len(played.cycles), played.skipped
    )


def format_result(result: Mapping[str, Any], run: int, skipped: int = 0) -> str:
    """Format decisions, workloads, queues and nodes as tables."""
    parts = [
        _decision_summary(result["cycles"]),
        _steady_state_note(run, skipped),
        format_table(("WORKLOAD", "PHASE", "GPUS", "NODES", "REASON"), _workload_rows(result["workloads"])),
        format_table(
            ("POOL", "QUEUE", "QUOTA", "FAIR SHARE", "ALLOCATED", "REQUESTED"), _queue_rows(result["queues"])
        ),
        format_table(("NODE", "FREE GPUS", "FREE CPUS", "FREE MIB"), _node_rows(result["nodes"])),
    ]
    nodes_wanted = {pool: demand["nodes_wanted"] for pool, demand in result["demand"].items()}
    parts += [
        f"Pool {pool} needs {format_count(count, 'more node')}"
        for pool, count in nodes_wanted.items()
        if count
    ]
    return "\n\n".join(part for part in parts if part)


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(header), *(list(row) for row in rows)]
    if len(lines) == 1:
        return ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _decision_summary(cycles: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for number, cycle in enumerate(cycles, 1):
        if cycle["decisions"]:
            lines.append(f"Cycle {number}")
        for decision in cycle["decisions"]:
            purpose = f" for {decision['for']}" if decision["for"] else ""
            pods = ", ".join(_pod_moves(decision["pods"]))
            lines.append(f"  {decision['kind']} {decision['workload']}{purpose}: {pods}")
    return "\n".join(lines) if lines else "No decisions."


def _steady_state_note(run: int, skipped: int) -> str:
    if not skipped:
        return ""
    return (
        f"Steady state from cycle {run - 1:,}: no further changes. "
        f"Ran {format_count(run, 'cycle')} of {run + skipped:,}, including the last one."
    )


def _pod_moves(pods: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    counts: dict[tuple[str, str | None, str | None], int] = {}
    for pod in pods:
        move = (pod["role"], pod["from"], pod["to"])
        counts[move] = counts.get(move, 0) + 1
    for (role, since, to), count in counts.items():
        route = " ".join(
            part for part in (f"from {since}" if since else "", f"to {to}" if to else "") if part
        )
        yield f"{count} x {role} {route}"


def _workload_rows(workloads: Mapping[str, Mapping[str, Any]]) -> Iterable[Sequence[str]]:
    for name, entry in workloads.items():
        nodes = dict.fromkeys(pod["node"] for pod in entry["pods"] if pod["node"])
        why = "; ".join(blocker["message"] for blocker in entry["blockers"][:1])
        reason = f"{entry['blockers'][0]['reason']}: {why}" if entry["blockers"] else ""
        yield name, entry["phase"], f"{entry['gpus']:g}", ",".join(nodes), reason


def _queue_rows(pools: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterable[Sequence[str]]:
    for pool, queues in pools.items():
        for queue, entry in queues.items():
            gpus = (entry[key]["gpu"] for key in ("quota", "fair_share", "allocated", "requested"))
            yield pool, queue, *("unlimited" if number is None else f"{number:g}" for number in gpus)


def _node_rows(nodes: Mapping[str, Mapping[str, Any]]) -> Iterable[Sequence[str]]:
    for name, entry in nodes.items():
        free = entry["free"]
        yield name, f"{free['gpu']:g}", f"{free['cpu']:g}", f"{free['memory_mib']}"
