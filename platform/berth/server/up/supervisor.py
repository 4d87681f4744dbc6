"""Keep a set of processes running until asked to stop, then stop them all."""

import os
import signal
import time
from collections.abc import Callable, Sequence

from berth.server.up.child import Child
from berth.server.up.orphans import bury_orphans, orphans

SIGNALS = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HOUSEKEEPING = 30.0
PATIENCE = 10.0
PATIENCE_WITH_PODS = 60.0


class Supervisor:
    """Hears of ends and wishes through signals, which it takes one at a time: nothing happens in between."""

    def __init__(self, say: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self.children: list[Child] = []
        self.say = say
        self.now = now

    def listen(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def start(self, child: Child) -> None:
        self.children.append(child)
        child.start(self.now())

    def asked_to_stop(self, wait: float) -> bool:
        """Wait for the next signal; whatever ended is buried or started again."""
        got = signal.sigtimedwait(SIGNALS, max(0.0, wait))
        self._look_after_children()
        return got is not None and got.si_signo != signal.SIGCHLD

    def run(self) -> None:
        tidy = self.now() + HOUSEKEEPING
        while not self.asked_to_stop(min(child.due or tidy for child in self.children) - self.now()):
            if self.now() >= tidy:
                tidy = self.now() + HOUSEKEEPING
                for child in self.children:
                    child.trim_log()

    def stop(self, last: Sequence[Child] = ()) -> None:
        """All but `last`, then the pods that are left, then `last`. A second wish to stop cuts it short."""
        first = [child for child in self.children if child not in last]
        patient = self._end(first, PATIENCE)
        if patient:
            self._end_pods()
        self._end(list(last), PATIENCE)
        self.children.clear()

    def _look_after_children(self) -> None:
        now = self.now()
        for child in self.children:
            if (code := child.ended(now)) is not None:
                self.say(f"{child.name} ended ({_told(code)}), starting it again. Its log: {child.log}")
            if child.due is not None and child.due <= now:
                child.start(now)
        bury_orphans(self._own())

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
        """Their keepers pass the wish on and leave when the pod has ended; they need nothing of us for it."""
        asked: set[int] = set()
        deadline = self.now() + PATIENCE_WITH_PODS
        while (left := orphans(self._own())) and self.now() < deadline:
            if not asked:
                self.say(f"Waiting for {len(left)} running pods to end.")
            for pid in set(left) - asked:
                os.kill(pid, signal.SIGTERM)
                asked.add(pid)
            got = signal.sigtimedwait(SIGNALS, max(0.0, deadline - self.now()))
            if got is not None and got.si_signo != signal.SIGCHLD:
                return

    def _own(self) -> set[int | None]:
        return {child.pid for child in self.children}


def _told(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
