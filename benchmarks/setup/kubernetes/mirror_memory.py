"""Measure the memory of a Kubernetes mirror in a separate process."""

import gc
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def measure_mirror(kubeconfig: str, installation: str) -> dict[str, Any]:
    """Measure a mirror in a new process.

    Return the number of objects, the duration of the list requests in seconds, and the memory in MiB.
    """
    command = [sys.executable, "-m", "benchmarks.setup.kubernetes.mirror_memory", installation]
    output = subprocess.run(command, input=kubeconfig, capture_output=True, text=True, check=True).stdout
    figures: dict[str, Any] = json.loads(output)
    return figures


def main() -> None:
    from pools.kubernetes.api_server.api import Api
    from pools.kubernetes.api_server.credentials import parse_kubeconfig
    from pools.kubernetes.mirror import Mirror

    api = Api(parse_kubeconfig(sys.stdin.read()))
    mirror = Mirror(
        api, sys.argv[1], on_change=lambda: None, on_deleted=lambda pod: None, now=lambda: datetime.now(UTC)
    )
    before, began = memory_mib("VmRSS"), time.monotonic()
    nodes, pods = len(mirror.nodes()), mirror.pods()
    figures = {
        "nodes": nodes, "pods": len(pods), "own_pods": sum(mirror.is_own_pod(pod) for pod in pods),
        "lists_s": round(time.monotonic() - began, 1), "growth_mib": round(memory_mib("VmRSS") - before, 1),
        "peak_growth_mib": round(memory_mib("VmHWM") - before, 1),
    }  # fmt: skip
    print(json.dumps(figures))


def memory_mib(name: str) -> float:
    """Collect garbage, and return a memory value of this process, such as VmRSS, in MiB."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
