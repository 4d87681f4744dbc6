"""Run Ray and the agent on a node. If Ray exits, restart it without stopping the pods.

python -m pools.runtimes.ray.node.main SETTINGS
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from pools.runtimes.base import PodState
from pools.runtimes.ray.node.agent import Agent
from pools.runtimes.ray.node.pods import NodePods
from pools.runtimes.ray.node.raylet import RayProcess
from pools.runtimes.ray.node.settings import NodeSettings, node_settings
from pools.runtimes.shim.processes import open_anchor_pidfd, start_time

POLL_SECONDS = 0.5
STOP_SECONDS = 5.0


def main(path: str) -> int:
    node = node_settings(Path(path))
    node.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    (node.root / "main.pid").write_text(str(os.getpid()))
    stopping, upgrading = threading.Event(), threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: upgrading.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    own_pid = os.getpid()
    pods = NodePods(node.root, f"{own_pid}:{start_time(own_pid)}", node.workspaces, node.environments)
    pods.begin_image_probe()
    ray = RayProcess(node, pods.processes)
    agent = Agent((node.address, node.agent_port), pods, node.secret, ray.obstacle)
    ray.adopt_or_start()
    threading.Thread(target=agent.serve_forever, daemon=True).start()
    try:
        while not _wait_for_end(ray, stopping, upgrading):
            ray.restart()
            if ray.has_failed_repeatedly and not pods.processes():
                break
        if upgrading.is_set() and not stopping.is_set():
            agent.shutdown()
            agent.server_close()
            _run_new_code(ray, path)
    finally:
        # Do not report pods that end after this point, because this shutdown ends them.
        agent.closing = True
        agent.shutdown()
        agent.server_close()
        _stop_running_pods(pods)
        ray.end(spares_pods=False)
        _clean_up(node)
    return 0 if stopping.is_set() else 1


def _run_new_code(ray: RayProcess, path: str) -> None:
    """Restart this process with new code and settings. Ray remains its child, and pods keep running."""
    env = dict(os.environ, **ray.adoption_variables())
    # Block SIGHUP until the new code handles it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    os.execve(sys.executable, [sys.executable, "-m", "pools.runtimes.ray.node.main", path], env)  # noqa: S606


def _wait_for_end(ray: RayProcess, stopping: threading.Event, upgrading: threading.Event) -> bool:
    """Wait until this process must exit or load new code. Return False if Ray exits first."""
    anchor = os.environ.get("BERTH_ANCHOR", "")
    fd = open_anchor_pidfd(anchor) if anchor else None
    try:
        return _wait_with_anchor(ray, stopping, upgrading, fd, must_have_anchor=bool(anchor))
    finally:
        if fd is not None:
            os.close(fd)


def _wait_with_anchor(
    ray: RayProcess, stopping: threading.Event, upgrading: threading.Event, anchor: int | None, *,
    must_have_anchor: bool,
) -> bool:  # fmt: skip
    while not upgrading.is_set() and not stopping.wait(POLL_SECONDS):
        if must_have_anchor and (anchor is None or select.select([anchor], [], [], 0)[0]):
            return True
        if not ray.is_running:
            return False
    return True


def _stop_running_pods(pods: NodePods) -> None:
    """Stop all pods, including those whose shim died with Ray."""
    for pod_id in pods.list_pods():
        pods.stop(pod_id, 0)
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        reports = pods.get_reports(pods.list_pods()).values()
        if all(report.state in (PodState.EXITED, PodState.UNKNOWN) for report in reports):
            return
        time.sleep(0.05)


def _clean_up(node: NodeSettings) -> None:
    (node.root / "secret").unlink(missing_ok=True)
    if node.temp:
        shutil.rmtree(node.temp, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
