"""Lifecycle of a worker: register, run calls, shut down."""

import logging
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from types import FrameType

import cloudpickle

from berth.core.frames import Frame
from berth.worker import calls, session_ray
from berth.worker.crew import Crew, Finished
from berth.worker.facts import Facts
from berth.worker.link import Link, Orders, Rejected, ServerUnreachable, Welcome
from berth.worker.own_ray import NoRay
from berth.worker.plugins import of_pool, together
from berth.worker.preparing import NotPrepared, given_plugins
from berth.worker.slots import ProcessSlot, Slot, ThreadSlot
from pools.plugins.base import Plugin
from pools.plugins.contexts import Hook, HookContexts
from pools.plugins.errors import HookFailed, PluginError

log = logging.getLogger("berth.worker")

WAIT = 20.0  # seconds for which the server may delay a response
LOOK = 2.0  # seconds between checks of Ray
GOODBYE = 4.0  # seconds to send finished results
BATCH = 16 << 20


class Worker:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._stop = threading.Event()
        self._deadline = float("inf")  # deadline for signing off
        self._at_once = self._ray_was_lost = False
        self._link = Link(facts.address, facts.secret, goes_on=self._goes_on)
        self._ray = session_ray.SessionRay()
        self._held: set[int] = set()
        self._seen: deque[tuple[int, int]] = deque(maxlen=2000)  # to ignore orders of repeated responses
        self._lock = threading.Lock()

    def live(self) -> int:
        """Run until the session ends; return an exit code."""
        signal.signal(signal.SIGTERM, self._on_signal)
        ours = (sys.version.split()[0], cloudpickle.__version__)
        try:
            welcome = self._link.hello(*ours)
        except (Rejected, ServerUnreachable) as error:
            log.critical("the session does not accept this worker: %s", error)
            return 1
        if welcome.error:
            log.error("%s", welcome.error)
            return 1
        try:
            return self._run_session(welcome, ours)
        finally:
            self._ray.leave()

    def _run_session(self, welcome: Welcome, ours: tuple[str, str]) -> int:
        """Serve calls. Ray starts before the plugin contexts are entered, and ends after they are exited."""
        app = HookContexts(Hook.AROUND_APP)
        try:
            own = given_plugins(welcome.setup, self.facts, goes_on=lambda: not self._stop.is_set())
            self._ray.join(goes_on=lambda: not self._stop.is_set())
            if welcome.executor == "thread":
                session_ray.connect()
                signal.signal(signal.SIGTERM, self._on_signal)  # Ray installs its own handler
            plugins = together(of_pool(welcome.plugins), own)
            app.enter(plugins, self.facts.instance())
        except Exception as error:  # the client's code may raise anything
            stopped = isinstance(error, NoRay | NotPrepared) and self._stop.is_set()
            return 0 if stopped else self._report_setup_failure(error)
        try:
            self._link.hello(*ours, ready=True)
            self._serve(plugins, welcome)
        except (Rejected, ServerUnreachable) as error:
            log.critical("the session no longer accepts this worker: %s", error)
            return 1
        finally:
            app.leave()
            if welcome.executor == "thread":
                session_ray.disconnect()
        return 1 if self._ray_was_lost else 0

    def _serve(self, plugins: Sequence[Plugin], welcome: Welcome) -> None:
        crew = Crew(self._slots(tuple(plugins), welcome))
        crew.start()
        fetching = threading.Thread(target=self._fetch, args=(crew,), name="fetch", daemon=True)
        sender = threading.Thread(target=self._send_finished, args=(crew,), name="hand-in", daemon=True)
        fetching.start()
        sender.start()
        while not self._stop.wait(LOOK):
            if self._ray.is_lost:
                log.error(
                    "the session's Ray has ended: this worker exits, and a new worker will start a new Ray"
                )
                self._ray_was_lost = True
                self._stop.set()
        crew.close(0.0 if self._is_over() else self.facts.patience)
        self._deadline = time.monotonic() + GOODBYE
        crew.finished.put((0, calls.Outcome("last")))
        sender.join(GOODBYE + 1)
        crew.close_slots()
        try:
            self._link.leave()
        except (Rejected, ServerUnreachable) as error:
            log.info("the worker could not sign off: %s", error)

    def _slots(self, plugins: tuple[Plugin, ...], welcome: Welcome) -> list[Slot]:
        most, many = welcome.result_bytes_max, welcome.slots
        if welcome.executor == "thread":
            return [ThreadSlot(plugins, most) for _ in range(many)]
        return [ProcessSlot(plugins, self.facts.instance(number, many), most) for number in range(many)]

    def _fetch(self, crew: Crew) -> None:
        while not self._stop.is_set():
            with self._lock:
                held = sorted(self._held)
            try:
                orders = self._link.orders(held, WAIT)
            except ServerUnreachable:
                continue
            except Rejected as error:
                log.warning("the session no longer knows this worker: %s", error)
                self._at_once = True
                self._stop.set()
                return
            self._take(orders, crew)

    def _send_finished(self, crew: Crew) -> None:
        last = False
        while not last:
            batch, last = _next_batch(crew.finished)
            frames: list[Frame] = [
                ({"number": number, "outcome": outcome.kind, "error": outcome.details}, outcome.data)
                for number, outcome in batch
            ]
            if not frames:
                continue
            self._send_results(frames, crew)
            with self._lock:
                self._held.difference_update(number for number, _ in batch)

    def _take(self, orders: Orders, crew: Crew) -> None:
        with self._lock:
            fresh = [order for order in orders.orders if (order.number, order.attempt) not in self._seen]
            self._held.update(order.number for order in fresh)
            self._seen.extend((order.number, order.attempt) for order in fresh)
        for order in fresh:
            crew.take(order)
        if orders.leave:
            self._at_once = orders.at_once
            self._stop.set()

    def _send_results(self, frames: list[Frame], crew: Crew) -> None:
        """Send results. Replace a rejected result by an error, since its call would otherwise be repeated."""
        try:
            with self._lock:
                held = sorted(self._held)
            self._take(self._link.results(frames, held), crew)
        except ServerUnreachable as error:
            log.warning("%d results could not be sent: %s", len(frames), error)
        except Rejected as error:
            log.warning("results were rejected: %s", error)
            if len(frames) > 1:
                for frame in frames:
                    self._send_results([frame], crew)
            elif frames[0][0]["outcome"] != "failed":
                details = {"type": "ResultRefused", "message": str(error)[:4000]}
                self._send_results([({**frames[0][0], "outcome": "failed", "error": details}, b"")], crew)

    def _is_over(self) -> bool:
        """Return whether the session is over or other workers take over this worker's calls."""
        if self._at_once:
            return True
        self._deadline = time.monotonic() + 1.0
        try:
            return self._link.orders((), 0).at_once
        except Rejected:
            return True
        except ServerUnreachable:
            return False

    def _report_setup_failure(self, error: Exception) -> int:
        cause = error.__cause__ if isinstance(error, HookFailed) and error.__cause__ else error
        details = calls.failed("PluginFailed", "the plugins could not be set up", cause).details
        expected = isinstance(error, PluginError | NoRay)
        message = f"{error}{calls.hint(cause)}" if expected else details["message"]
        fault = f"Node {self.facts.node}: {message}"
        log.error("%s\n%s", fault, details["traceback"])
        try:
            self._link.leave(f"{fault}\n{details['traceback']}")
        except (Rejected, ServerUnreachable) as silence:
            log.critical("the fault could not be reported: %s", silence)
        return 1

    def _goes_on(self) -> bool:
        return time.monotonic() < self._deadline

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop.set()


def _next_batch(finished: "queue.SimpleQueue[Finished]") -> tuple[list[Finished], bool]:
    """Return one or more outcomes, after waiting for the first, and True if no outcome will follow."""
    batch, size = [finished.get()], 0
    while batch[-1][1].kind != "last" and len(batch) < 100 and size < BATCH:
        size += len(batch[-1][1].data)
        try:
            batch.append(finished.get_nowait())
        except queue.Empty:
            break
    last = batch[-1][1].kind == "last"
    return (batch[:-1] if last else batch), last
