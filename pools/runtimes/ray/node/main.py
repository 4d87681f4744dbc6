"""Run Ray and the agent until either of them ends.

python -m pools.runtimes.ray.node.main SETTINGS
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from pools.runtimes.base import PodState
from pools.runtimes.ray.node import raylet
from pools.runtimes.ray.node.agent import Agent
from pools.runtimes.ray.node.pods import NodePods
from pools.runtimes.ray.node.settings import NodeSettings, node_settings
from pools.runtimes.shim.processes import open_anchor, start_time

LOOK_SECONDS = 0.5
STOP_SECONDS = 5.0


def main(path: str) -> int:
    node = node_settings(Path(path))
    node.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    here = os.getpid()
    pods = NodePods(node.root, f"{here}:{start_time(here)}", node.workspaces, node.environments)
    agent = Agent((node.address, node.agent_port), pods, node.secret, lambda: raylet.obstacle(node, process))
    process = raylet.start(node)
    threading.Thread(target=agent.serve_forever, daemon=True).start()
    try:
        _until_over(process, told)
    finally:
        agent.closing = True  # how pods end now is our doing, not what became of them
        agent.shutdown()
        agent.server_close()
        _end_pods(pods)
        raylet.end(process)
        _clean(node)
    return 0 if told.is_set() else 1


def _until_over(process: subprocess.Popen[bytes], told: threading.Event) -> None:
    anchor = os.environ.get("BERTH_ANCHOR", "")
    fd = open_anchor(anchor) if anchor else None
    while process.poll() is None and not told.wait(LOOK_SECONDS):
        if anchor and (fd is None or select.select([fd], [], [], 0)[0]):
            return


def _end_pods(pods: NodePods) -> None:
    """Those whose keeper died with the raylet leave processes behind; the others are asked to end."""
    for pod_id in pods.known():
        pods.stop(pod_id, 0)
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        reports = pods.look(pods.known()).values()
        if all(report.state in (PodState.EXITED, PodState.UNKNOWN) for report in reports):
            return
        time.sleep(0.05)


def _clean(node: NodeSettings) -> None:
    (node.root / "secret").unlink(missing_ok=True)
    if node.temp:
        shutil.rmtree(node.temp, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
