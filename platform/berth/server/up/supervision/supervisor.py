"""Keep a set of processes running until a stop is requested, then stop all processes."""

import os
import signal
import time
from collections.abc import Callable, Sequence

from berth.server.up.supervision.child import Child
from berth.server.up.supervision.orphans import find_orphans, reap_orphans

SIGNALS = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HOUSEKEEPING_SECONDS = 30.0
STOP_SECONDS = 10.0
PODS_STOP_SECONDS = 60.0


class Supervisor:
    """Supervisor that receives child exits and stop requests as signals, and handles one signal at a time."""

    def __init__(self, report: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self.children: list[Child] = []
        self.report = report
        self.now = now

    def listen(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def start(self, child: Child) -> None:
        self.children.append(child)
        child.start(self.now())

    def wait_for_stop_request(self, wait: float) -> bool:
        """Wait up to `wait` seconds for a signal and return whether it requests a stop.

        Processes that have exited are restarted or reaped.
        """
        received = signal.sigtimedwait(SIGNALS, max(0.0, wait))
        self._restart_children()
        return received is not None and received.si_signo != signal.SIGCHLD

    def run(self) -> None:
        next_housekeeping = self.now() + HOUSEKEEPING_SECONDS
        while not self.wait_for_stop_request(
            min(child.restart_at or next_housekeeping for child in self.children) - self.now()
        ):
            if self.now() >= next_housekeeping:
                next_housekeeping = self.now() + HOUSEKEEPING_SECONDS
                for child in self.children:
                    child.trim_log()

    def stop(self, last: Sequence[Child] = ()) -> None:
        """Stop all children except `last`, then the pods, then `last`.

        A second stop signal kills all of them.
        """
        first = [child for child in self.children if child not in last]
        may_wait = self._stop_children(first, STOP_SECONDS)
        if may_wait:
            self._stop_running_pods()
        self._stop_children(list(last), STOP_SECONDS)
        self.children.clear()

    def _restart_children(self) -> None:
        now = self.now()
        for child in self.children:
            if (code := child.poll_exit(now)) is not None:
                self.report(
                    f"{child.name} exited ({_describe_exit(code)}) and is being restarted. Log: {child.log}"
                )
            if child.restart_at is not None and child.restart_at <= now:
                child.start(now)
        reap_orphans(self._child_pids())

    def _stop_children(self, children: Sequence[Child], seconds: float) -> bool:
        for child in children:
            child.request_stop()
        deadline = self.now() + seconds
        while any(child.process and child.process.poll() is None for child in children):
            received = signal.sigtimedwait(SIGNALS, max(0.0, deadline - self.now()))
            if received is None or received.si_signo != signal.SIGCHLD:
                for child in children:
                    child.kill()
                return received is None
        return True

    def _stop_running_pods(self) -> None:
        """Stop the pods through their shims. Give up at the deadline or at a second stop request."""
        signalled: set[int] = set()
        deadline = self.now() + PODS_STOP_SECONDS
        while (remaining := find_orphans(self._child_pids())) and self.now() < deadline:
            if not signalled:
                self.report(f"Waiting for {len(remaining)} running pods to stop.")
            for pid in set(remaining) - signalled:
                os.kill(pid, signal.SIGTERM)
                signalled.add(pid)
            received = signal.sigtimedwait(SIGNALS, max(0.0, deadline - self.now()))
            if received is not None and received.si_signo != signal.SIGCHLD:
                return

    def _child_pids(self) -> set[int | None]:
        return {child.pid for child in self.children}


def _describe_exit(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
