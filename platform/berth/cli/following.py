"""Here we show a workload's output while it is written, through evictions, until it has ended."""

import sys
import time
from typing import TYPE_CHECKING

from berth.cli.watching import tell

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.answers import Workload

PAUSE_SECONDS = 0.5
SLOW_PAUSE_SECONDS = 2.0
LOSSES_MAX = 10


def follow_output(
    client: "Client", workload: "Workload", pod: str | None = None, tail: int | None = None
) -> "Workload":
    """One pod's output, run after run; the changes between are told on stderr. `tail` cuts the first run."""
    run, told = 0, ("", "")
    while True:
        if (workload.phase, workload.reason) != told:
            told = (workload.phase, workload.reason)
            tell(workload)
        if workload.run > run and _has_output(client, workload, pod):
            _pour(client, workload, pod, tail if run == 0 else None)
            run = workload.run
        elif workload.has_ended:
            return workload
        else:
            placed = workload.phase in ("starting", "running", "stopping")
            time.sleep(PAUSE_SECONDS if placed else SLOW_PAUSE_SECONDS)
        workload = client.workloads.get(workload.id)


def _has_output(client: "Client", workload: "Workload", pod: str | None) -> bool:
    pods = client.workloads.pods(workload.id)
    return any(found.run == workload.run and pod in (None, found.short_name) for found in pods)


def _pour(client: "Client", workload: "Workload", pod: str | None, tail: int | None) -> None:
    """One run's output to its end: a lost connection is taken up where it broke."""
    from berth.client import Unreachable

    offset, losses = 0, 0
    if tail is not None:
        chunk = client.workloads.log(workload.id, pod=pod, run=workload.run, tail=tail)
        write(chunk.data)
        offset = chunk.next_offset
    while True:
        try:
            for piece in client.workloads.log_stream(workload.id, pod=pod, run=workload.run, offset=offset):
                write(piece)
                offset, losses = offset + len(piece), 0
            return
        except Unreachable:
            losses += 1
            if losses > LOSSES_MAX:
                raise
            time.sleep(PAUSE_SECONDS * losses)


def write(piece: bytes) -> None:
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
