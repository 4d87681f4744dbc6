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
from berth.worker.config import WorkerConfig
from berth.worker.crew import Finished, SlotPool
from berth.worker.own_ray import RayUnavailable
from berth.worker.plugins import load_pool_plugins, merge_plugins
from berth.worker.preparing import PreparationFailed, load_session_plugins
from berth.worker.server_connection import (
    Instructions,
    Registration,
    Rejected,
    ServerConnection,
    ServerUnreachable,
)
from berth.worker.slots import ProcessSlot, Slot, ThreadSlot
from pools.plugins.base import Plugin
from pools.plugins.contexts import Hook, HookContexts
from pools.plugins.errors import HookFailed, PluginError

log = logging.getLogger("berth.worker")

LONG_POLL_SECONDS = 20.0  # maximum time for which the server may delay a response
CHECK_SECONDS = 2.0  # seconds between checks of whether Ray is running
SIGN_OFF_SECONDS = 4.0  # maximum time for sending finished results
BATCH_BYTES = 16 << 20


class Worker:
    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self._stop = threading.Event()
        self._deadline = float("inf")  # time after which failed requests are not retried
        self._at_once = self._ray_was_lost = False
        self._link = ServerConnection(config.address, config.secret, should_continue=self._should_continue)
        self._ray = session_ray.SessionRay()
        self._held_calls: set[int] = set()
        # The response to a retried request may repeat instructions, which are then ignored.
        self._seen_calls: deque[tuple[int, int]] = deque(maxlen=2000)
        self._lock = threading.Lock()

    def run(self) -> int:
        """Run until the session ends. Return an exit code."""
        signal.signal(signal.SIGTERM, self._on_signal)
        versions = (sys.version.split()[0], cloudpickle.__version__)
        try:
            registration = self._link.register(*versions)
        except (Rejected, ServerUnreachable) as error:
            log.critical("the session does not accept this worker: %s", error)
            return 1
        if registration.error:
            log.error("%s", registration.error)
            return 1
        try:
            return self._run_session(registration, versions)
        finally:
            self._ray.leave()

    def _run_session(self, registration: Registration, versions: tuple[str, str]) -> int:
        """Run calls. Ray starts before the plugin contexts and stops after them."""
        app = HookContexts(Hook.AROUND_APP)
        try:
            session_plugins = load_session_plugins(
                registration.setup, self.config, should_continue=lambda: not self._stop.is_set()
            )
            self._ray.join(should_continue=lambda: not self._stop.is_set())
            if registration.executor == "thread":
                session_ray.connect()
                signal.signal(signal.SIGTERM, self._on_signal)  # restore this handler, which Ray has replaced
            plugins = merge_plugins(load_pool_plugins(registration.plugins), session_plugins)
            app.enter(plugins, self.config.instance())
        except Exception as error:  # the client's code may raise any error
            stopped = isinstance(error, RayUnavailable | PreparationFailed) and self._stop.is_set()
            return 0 if stopped else self._report_setup_failure(error)
        try:
            self._link.register(*versions, ready=True)
            self._serve(plugins, registration)
        except (Rejected, ServerUnreachable) as error:
            log.critical("the session no longer accepts this worker: %s", error)
            return 1
        finally:
            app.leave()
            if registration.executor == "thread":
                session_ray.disconnect()
        return 1 if self._ray_was_lost else 0

    def _serve(self, plugins: Sequence[Plugin], registration: Registration) -> None:
        pool = SlotPool(self._create_slots(tuple(plugins), registration))
        pool.start()
        fetching = threading.Thread(target=self._fetch_calls, args=(pool,), name="fetch", daemon=True)
        sender = threading.Thread(
            target=self._send_finished_results, args=(pool,), name="send-finished", daemon=True
        )
        fetching.start()
        sender.start()
        while not self._stop.wait(CHECK_SECONDS):
            if self._ray.is_lost:
                log.error(
                    "the session's Ray has ended: this worker exits, and a new worker will start a new Ray"
                )
                self._ray_was_lost = True
                self._stop.set()
        pool.close(0.0 if self._is_session_over() else self.config.grace_seconds)
        self._deadline = time.monotonic() + SIGN_OFF_SECONDS
        pool.finished.put((0, calls.CallOutcome("last")))
        sender.join(SIGN_OFF_SECONDS + 1)
        pool.close_slots()
        try:
            self._link.leave()
        except (Rejected, ServerUnreachable) as error:
            log.info("the worker could not sign off: %s", error)

    def _create_slots(self, plugins: tuple[Plugin, ...], registration: Registration) -> list[Slot]:
        limit, count = registration.result_bytes_max, registration.slots
        if registration.executor == "thread":
            return [ThreadSlot(plugins, limit) for _ in range(count)]
        return [ProcessSlot(plugins, self.config.instance(number, count), limit) for number in range(count)]

    def _fetch_calls(self, pool: SlotPool) -> None:
        while not self._stop.is_set():
            with self._lock:
                held_calls = sorted(self._held_calls)
            try:
                instructions = self._link.fetch_instructions(held_calls, LONG_POLL_SECONDS)
            except ServerUnreachable:
                continue
            except Rejected as error:
                log.warning("the session no longer recognizes this worker: %s", error)
                self._at_once = True
                self._stop.set()
                return
            self._follow_instructions(instructions, pool)

    def _send_finished_results(self, pool: SlotPool) -> None:
        last = False
        while not last:
            batch, last = _next_batch(pool.finished)
            frames: list[Frame] = [
                ({"number": number, "outcome": outcome.kind, "error": outcome.details}, outcome.data)
                for number, outcome in batch
            ]
            if not frames:
                continue
            self._send_results(frames, pool)
            with self._lock:
                self._held_calls.difference_update(number for number, _ in batch)

    def _follow_instructions(self, instructions: Instructions, pool: SlotPool) -> None:
        with self._lock:
            fresh = [
                call for call in instructions.calls if (call.number, call.attempt) not in self._seen_calls
            ]
            self._held_calls.update(call.number for call in fresh)
            self._seen_calls.extend((call.number, call.attempt) for call in fresh)
        for call in fresh:
            pool.enqueue(call)
        if instructions.leave:
            self._at_once = instructions.at_once
            self._stop.set()

    def _send_results(self, frames: list[Frame], pool: SlotPool) -> None:
        """Send results.

        A rejected result is replaced with an error, because its call would otherwise be retried.
        """
        try:
            with self._lock:
                held_calls = sorted(self._held_calls)
            self._follow_instructions(self._link.send_results(frames, held_calls), pool)
        except ServerUnreachable as error:
            log.warning("%d results could not be sent: %s", len(frames), error)
        except Rejected as error:
            log.warning("results were rejected: %s", error)
            if len(frames) > 1:
                for frame in frames:
                    self._send_results([frame], pool)
            elif frames[0][0]["outcome"] != "failed":
                details = {"type": "ResultRejected", "message": str(error)[:4000]}
                self._send_results([({**frames[0][0], "outcome": "failed", "error": details}, b"")], pool)

    def _is_session_over(self) -> bool:
        """Return whether the session has ended, or other workers have taken over this worker's calls."""
        if self._at_once:
            return True
        self._deadline = time.monotonic() + 1.0
        try:
            return self._link.fetch_instructions((), 0).at_once
        except Rejected:
            return True
        except ServerUnreachable:
            return False

    def _report_setup_failure(self, error: Exception) -> int:
        cause = error.__cause__ if isinstance(error, HookFailed) and error.__cause__ else error
        details = calls.failed_outcome("PluginFailed", "the plugins could not be set up", cause).details
        expected = isinstance(error, PluginError | RayUnavailable)
        reason = f"{error}{calls.plugin_hint(cause)}" if expected else details["message"]
        message = f"Node {self.config.node}: {reason}"
        log.error("%s\n%s", message, details["traceback"])
        try:
            self._link.leave(f"{message}\n{details['traceback']}")
        except (Rejected, ServerUnreachable) as send_error:
            log.critical("the failure could not be reported: %s", send_error)
        return 1

    def _should_continue(self) -> bool:
        return time.monotonic() < self._deadline

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop.set()


def _next_batch(finished: "queue.SimpleQueue[Finished]") -> tuple[list[Finished], bool]:
    """Return the next batch of outcomes, and whether it is the last one."""
    batch, size = [finished.get()], 0
    while batch[-1][1].kind != "last" and len(batch) < 100 and size < BATCH_BYTES:
        size += len(batch[-1][1].data)
        try:
            batch.append(finished.get_nowait())
        except queue.Empty:
            break
    last = batch[-1][1].kind == "last"
    return (batch[:-1] if last else batch), last
