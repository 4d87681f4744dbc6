"""Keep a set of processes running until a stop is requested, then stop all of them."""

import os
import signal
import time
from collections.abc import Callable, Sequence

from berth.server.up.child import Child
from berth.server.up.orphans import orphans, reap_orphans

SIGNALS = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HOUSEKEEPING = 30.0
PATIENCE = 10.0
PATIENCE_WITH_PODS = 60.0


class Supervisor:
    """Supervisor that handles child exits and stop requests as signals, one at a time, without races."""

    def __init__(self, say: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self.children: list[Child] = []
        self.say = say
        self.now = now

    def listen(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def start(self, child: Child) -> None:
        self.children.append(child)
        child.start(self.now())

    def is_stop_requested(self, wait: float) -> bool:
        """Wait for the next signal, and reap or restart processes that have ended."""
        got = signal.sigtimedwait(SIGNALS, max(0.0, wait))
        self._look_after_children()
        return got is not None and got.si_signo != signal.SIGCHLD

    def run(self) -> None:
        tidy = self.now() + HOUSEKEEPING
        while not self.is_stop_requested(min(child.due or tidy for child in self.children) - self.now()):
            if self.now() >= tidy:
                tidy = self.now() + HOUSEKEEPING
                for child in self.children:
                    child.trim_log()

    def stop(self, last: Sequence[Child] = ()) -> None:
        """Stop all children except `last`, then pods, then `last`. A second stop signal kills them."""
        first = [child for child in self.children if child not in last]
        may_wait = self._end(first, PATIENCE)
        if may_wait:
            self._end_pods()
        self._end(list(last), PATIENCE)
        self.children.clear()

    def _look_after_children(self) -> None:
        now = self.now()
        for child in self.children:
            if (code := child.ended(now)) is not None:
                self.say(f"{child.name} ended ({_exit_text(code)}), starting it again. Its log: {child.log}")
            if child.due is not None and child.due <= now:
                child.start(now)
        reap_orphans(self._own())

    def _end(self, children: Sequence[Child], seconds: float) -> bool:
        for child in children:
            child.ask_to_stop()
        deadline = self.now() + seconds
        while any(child.process and child.process.poll() is None for child in children):
            got = signal.sigtimedwait(SIGNALS, max(0.0, deadline - self.now()))
            if got is None or got.si_signo != signal.SIGCHLD:
                for child in children:
                    child.kill()
                return got is None
        return True

    def _end_pods(self) -> None:
        """Signal the keepers, which then stop their pods and exit."""
        signalled: set[int] = set()
        deadline = self.now() + PATIENCE_WITH_PODS
        while (left := orphans(self._own())) and self.now() < deadline:
            if not signalled:
                self.say(f"Waiting for {len(left)} running pods to end.")
            for pid in set(left) - signalled:
                os.kill(pid, signal.SIGTERM)
                signalled.add(pid)
            got = signal.sigtimedwait(SIGNALS, max(0.0, deadline - self.now()))
            if got is not None and got.si_signo != signal.SIGCHLD:
                return

    def _own(self) -> set[int | None]:
        return {child.pid for child in self.children}


def _exit_text(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
