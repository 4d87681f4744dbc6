"""Follow the output of a workload through evictions until it ends."""

import time
from typing import TYPE_CHECKING

from berth.cli.log_lines import Screen
from berth.cli.watching import tell

if TYPE_CHECKING:
    from berth.cli.log_lines import Matching
    from berth.client import Client
    from berth.client.answers import Pod, Workload

PAUSE_SECONDS = 0.5
SLOW_PAUSE_SECONDS = 1.0
LOSSES_MAX = 10


def follow_output(
    client: "Client", workload: "Workload", pod: str | None = None, tail: int | None = None,
    out: "Screen | Matching | None" = None,
) -> "Workload":  # fmt: skip
    """One pod's output, attempt after attempt; changes between are told on stderr. `tail` cuts the first."""
    out = out or Screen()
    poured, told = "", ("", "")
    while True:
        if (workload.phase, workload.reason) != told:
            told = (workload.phase, workload.reason)
            tell(workload)
        latest = _latest_pod(client, workload, pod)
        if latest is not None and latest.id != poured:
            _pour(client, latest, workload.id, None if poured else tail, out)
            poured = latest.id
        elif workload.has_ended:
            return workload
        else:
            placed = workload.phase in ("starting", "running", "stopping")
            time.sleep(PAUSE_SECONDS if placed else SLOW_PAUSE_SECONDS)
        workload = client.workloads.get(workload.id)


def _latest_pod(client: "Client", workload: "Workload", name: str | None) -> "Pod | None":
    """Of the present run: the one that was named, else that of rank 0; its latest attempt."""
    pods = [pod for pod in client.workloads.pods(workload.id) if pod.run == workload.run]
    if name is not None:
        pods = [pod for pod in pods if pod.short_name == name]
    return min(pods, key=lambda pod: (pod.rank, -_started(pod)), default=None)


def _started(pod: "Pod") -> float:
    return pod.created_at.timestamp() if pod.created_at else 0.0


def _pour(client: "Client", pod: "Pod", workload_id: str, tail: int | None, out: "Screen | Matching") -> None:
    """One attempt's output to its end: a lost connection is taken up where it broke."""
    from berth.client import Unreachable

    offset, losses = 0, 0
    if tail is not None:
        chunk = client.workloads.log(workload_id, pod=pod.short_name, run=pod.run, tail=tail)
        out(chunk.data)
        offset = chunk.next_offset
    while True:
        try:
            for piece in client.workloads.log_stream(
                workload_id, pod=pod.short_name, run=pod.run, offset=offset
            ):
                out(piece)
                offset, losses = offset + len(piece), 0
            out.end()
            return
        except Unreachable:
            losses += 1
            if losses > LOSSES_MAX:
                raise
            time.sleep(PAUSE_SECONDS * losses)
