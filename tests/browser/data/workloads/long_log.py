"""Browser test data: a long log for the pods of a workload."""

import math
import time
from datetime import datetime
from pathlib import Path

from pools.runtimes.pod_dir import PodDir
from pools.runtimes.shim.logs.logtimes import append_entries
from projects.models import Workload
from tests.support.present import present

STEPS = 900
ERROR = "RuntimeError: CUDA error: an illegal memory access was encountered"


def write_failed_log(workload: Workload, home: Path) -> None:
    """Write the log of a failed pod, whose last line is an error."""
    for pod in workload.pods.filter(state="failed"):
        place = PodDir(home / "run" / "pods" / str(pod.pk))
        place.create()
        steps = [f"step {step:>5}  loss {3 - step / 400:.4f}" for step in range(1, 201)]
        trace = ["Traceback (most recent call last):", '  File "train.py", line 120, in <module>', ERROR]
        place.log.write_text("\n".join([*steps, *trace]) + "\n")


def write_log(workload: Workload, home: Path, *, steps: int = STEPS, until: datetime | None = None) -> None:
    """Write the log of each pod. The last line has the time `until`, by default the current time."""
    pool = present(workload.pods.first()).node.pool
    pool.runtime = "local"
    pool.save(update_fields=["runtime"])
    for pod in workload.pods.all():
        place = PodDir(home / "run" / "pods" / str(pod.pk))
        place.create()
        lines = [f"rank {pod.rank} meets the others at 127.0.0.1:29500"]
        started, times, size = (
            int(present(workload.started_at).timestamp() * 1000),
            list[tuple[int, int]](),
            0,
        )
        end = until.timestamp() if until else time.time()
        interval = int((end * 1000 - started) / steps)
        for step in range(1, steps + 1):
            loss = 7.2 * math.exp(-step / 300) + 0.3 * abs(math.sin(step))
            lines.append(f"step {step:>5}  loss {loss:.4f}  {41_300 + step % 17 * 11:,} tokens/s")
            if step % 300 == 0:
                lines.append(f"checkpoint of step {step} saved in 4.1 s")
            if step == 880:
                lines += [
                    "Traceback (most recent call last):",
                    '  File "train.py", line 88, in next_batch',
                    "    return self.reader.read()",
                    "ConnectionResetError: [Errno 104] Connection reset by peer",
                    "shard 17 is read again",
                ]
            size = len("\n".join(lines)) + 1
            times.append((size, started + step * interval))
        place.log.write_text("\n".join(lines) + "\n")
        append_entries(str(place.log), 0, times)
