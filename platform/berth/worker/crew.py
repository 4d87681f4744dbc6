"""Worker slots, which take calls from one queue and put outcomes into another."""

import queue
import threading
import time
from collections.abc import Sequence

from berth.worker import calls
from berth.worker.server_connection import AssignedCall
from berth.worker.slots import ProcessSlot, Slot

Finished = tuple[int, calls.CallOutcome]
KILL_DELAY_SECONDS = 5.0  # seconds between interrupt and kill


class SlotPool:
    """Threads that run calls, one per slot. `finished` is the queue of unsent outcomes."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.finished: queue.SimpleQueue[Finished] = queue.SimpleQueue()
        self._slots = list(slots)
        self._calls: queue.SimpleQueue[AssignedCall | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: dict[int, Slot] = {}
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run_calls, args=(slot,), name=f"slot-{number}", daemon=True)
            for number, slot in enumerate(self._slots)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def enqueue(self, call: AssignedCall) -> None:
        self._calls.put(call)

    def close(self, grace_seconds: float) -> None:
        """Start no more calls, and stop the running ones.

        Calls that have not returned after `grace_seconds` are interrupted and, if that has no effect, killed.
        """
        self._closing = True
        for _ in self._threads:
            self._calls.put(None)
        if not self._wait_until_idle(grace_seconds):
            for slot in self._busy_slots():
                slot.interrupt()
            if not self._wait_until_idle(KILL_DELAY_SECONDS):
                for slot in self._busy_slots():
                    if isinstance(slot, ProcessSlot):
                        slot.kill()
        for thread in self._threads:
            thread.join(KILL_DELAY_SECONDS)
        with self._lock:
            unfinished, self._running = list(self._running), {}
        for number in unfinished:
            self.finished.put((number, calls.interrupted_outcome("the node was removed")))

    def close_slots(self) -> None:
        """Close all slots in parallel. Each slot exits its plugin contexts."""
        closers = [threading.Thread(target=slot.close, daemon=True) for slot in self._slots]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()

    def _run_calls(self, slot: Slot) -> None:
        while (call := self._calls.get()) is not None:
            if self._closing:
                self.finished.put((call.number, calls.interrupted_outcome("the node was removed")))
                continue
            with self._lock:
                self._running[call.number] = slot
            outcome = slot.run(call.payload)
            with self._lock:
                is_abandoned = self._running.pop(call.number, None) is None
            if not is_abandoned:
                self.finished.put((call.number, outcome))

    def _busy_slots(self) -> list[Slot]:
        with self._lock:
            return list(self._running.values())

    def _wait_until_idle(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._busy_slots():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True
