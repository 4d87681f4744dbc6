"""Run `berth simulate`: exit status and output."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from berth.core.words import counted
from scheduler.simulator.cycles import answer_of, play
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
    """Return exit status 0 and the result, or 2 and one line that names the invalid key."""
    try:
        played = play(load(Path(path)), cycles, until_stable, actions)
    except ScenarioError as error:
        return BAD_FILE, str(error)
    answer = answer_of(played)
    return OK, json.dumps(answer, indent=2) if as_json else as_text(answer, len(played.cycles), played.spared)


def as_text(answer: Mapping[str, Any], run: int, spared: int = 0) -> str:
    """Format decisions, workloads, queues and nodes as tables."""
    parts = [
        _decisions(answer["cycles"]),
        _steady_state(run, spared),
        table(("WORKLOAD", "PHASE", "GPUS", "NODES", "REASON"), _workloads(answer["workloads"])),
        table(("POOL", "QUEUE", "QUOTA", "FAIR SHARE", "ALLOCATED", "REQUESTED"), _queues(answer["queues"])),
        table(("NODE", "FREE GPUS", "FREE CPUS", "FREE MIB"), _nodes(answer["nodes"])),
    ]
    wanted = {pool: demand["nodes_wanted"] for pool, demand in answer["demand"].items()}
    parts += [f"Pool {pool} needs {counted(count, 'more node')}" for pool, count in wanted.items() if count]
    return "\n\n".join(part for part in parts if part)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(head), *(list(row) for row in rows)]
    if len(lines) == 1:
        return ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _decisions(cycles: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for number, cycle in enumerate(cycles, 1):
        if cycle["decisions"]:
            lines.append(f"Cycle {number}")
        for decision in cycle["decisions"]:
            whom = f" for {decision['for']}" if decision["for"] else ""
            pods = ", ".join(_pod_moves(decision["pods"]))
            lines.append(f"  {decision['kind']} {decision['workload']}{whom}: {pods}")
    return "\n".join(lines) if lines else "No decisions."


def _steady_state(run: int, spared: int) -> str:
    if not spared:
        return ""
    return (
        f"Steady state from cycle {run - 1:,}: no further changes. "
        f"Ran {counted(run, 'cycle')} of {run + spared:,}, including the last one."
    )


def _pod_moves(pods: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Yield one line for identical moves, with their count."""
    ways: dict[tuple[str, str | None, str | None], int] = {}
    for pod in pods:
        way = (pod["role"], pod["from"], pod["to"])
        ways[way] = ways.get(way, 0) + 1
    for (role, since, to), count in ways.items():
        route = " ".join(
            part for part in (f"from {since}" if since else "", f"to {to}" if to else "") if part
        )
        yield f"{count} x {role} {route}"


def _workloads(workloads: Mapping[str, Mapping[str, Any]]) -> Iterable[Sequence[str]]:
    for name, entry in workloads.items():
        nodes = dict.fromkeys(pod["node"] for pod in entry["pods"] if pod["node"])
        why = "; ".join(blocker["message"] for blocker in entry["blockers"][:1])
        reason = f"{entry['blockers'][0]['reason']}: {why}" if entry["blockers"] else ""
        yield name, entry["phase"], f"{entry['gpus']:g}", ",".join(nodes), reason


def _queues(pools: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterable[Sequence[str]]:
    for pool, queues in pools.items():
        for queue, entry in queues.items():
            gpus = (entry[key]["gpu"] for key in ("quota", "fair_share", "allocated", "requested"))
            yield pool, queue, *("unlimited" if number is None else f"{number:g}" for number in gpus)


def _nodes(nodes: Mapping[str, Mapping[str, Any]]) -> Iterable[Sequence[str]]:
    for name, entry in nodes.items():
        free = entry["free"]
        yield name, f"{free['gpu']:g}", f"{free['cpu']:g}", f"{free['memory_mib']}"
