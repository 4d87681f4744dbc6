"""Pods on a Ray node, started as Ray jobs."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from pools.runtimes.base import PodSpec
from pools.runtimes.local import LocalRuntime
from pools.runtimes.pod_dir import PodDir
from pools.runtimes.shim.processes import descendants
from pools.runtimes.shims import SHIM_CODE, SOURCE_ROOT

# The job runs until its shim exits, so that Ray keeps the pod's devices reserved.
# The shim has its own session. When the job ends, Ray kills only the job's processes, not the pod.
JOB_CODE = f"""import os
shim = os.fork()
if shim:
    os.waitpid(shim, 0)
    os._exit(0)
os.setsid()
{SHIM_CODE}"""


class NodePods(LocalRuntime):
    """Runtime of the pods on one Ray node. `workspaces` and `environments` may be shared directories."""

    def __init__(self, root: Path, anchor: str, workspaces: str = "", environments: str = "") -> None:
        super().__init__(root, anchor, environments=Path(environments) if environments else None)
        if workspaces:
            self._workspaces = Path(workspaces)
            self._workspaces.mkdir(parents=True, exist_ok=True, mode=0o700)

    def entrypoint(self, spec: PodSpec) -> str:
        """Store the pod spec. Return the command of the pod's Ray job, or "" if the pod must not start."""
        self.start(spec)
        pod = self._pod_dir(spec.pod_id)
        if not pod.has_record("order") or any(
            pod.has_record(record) for record in ("exit", "stop", "status")
        ):
            return ""
        job = [sys.executable, "-I", "-S", "-c", JOB_CODE, SOURCE_ROOT, str(pod), self.anchor]
        return f"cd / && exec {shlex.join(job)}"

    def processes(self) -> set[int]:
        """Return the process IDs of all running pods and their shims."""
        shims = [self._pod_dir(pod_id).shim_pid() for pod_id in self.list_pods()]
        return {pid for shim in shims if shim for pid in (shim, *descendants(shim))}

    def _spawn_shim(self, pod_id: str, pod: PodDir) -> None:
        """Do nothing, because Ray starts the shim as the pod's job."""
