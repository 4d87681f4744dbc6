"""Process that reconciles each service at its own interval, and submits scheduled runs."""

import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar

from django.db import connection
from structlog.contextvars import bound_contextvars

from berth.core.clock import Clock
from berth.db.loops.leader import LeaderLoop
from berth.db.loops.lease import HeldLease, LeadershipLost, fenced_transaction
from berth.db.loops.wake import Waiter, WakeResult
from berth.server.tracing.spans import span
from projects.elastic.reconcile_context import Fence, ReconcileContext
from projects.elastic.step import live_services, run_pass
from projects.elastic.weights import reset_interrupted_syncs
from projects.models import Service
from projects.services.schedules import has_due_runs, submit_due_runs

log = logging.getLogger(__name__)

NAME = "services"
LEASE_SECONDS = 15.0
THREADS = 8
BUSY_SECONDS, IDLE_SECONDS = 0.3, 2.0
# Seconds between checks while no service exists. A new service wakes the process.
EMPTY_SECONDS = 5.0


@dataclass(slots=True, kw_only=True)
class ServiceLoop(LeaderLoop):
    """Leader loop that reconciles services.

    `build_reconcile_context` is called with a fence that rejects writes once leadership is lost.
    """

    name: ClassVar[str] = NAME

    clock: Clock
    build_reconcile_context: Callable[[Fence], ReconcileContext]
    lease_seconds: float = LEASE_SECONDS
    _threads: ThreadPoolExecutor | None = None
    _due: dict[int, float] = field(default_factory=dict)
    _passes: dict[int, Future[None]] = field(default_factory=dict)
    _schedules: Future[None] | None = None

    def run(self) -> None:
        """Run until `end` is called. Passes in progress finish before the lease is released."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="service") as threads:
            self._threads = threads
            super(ServiceLoop, self).run()

    def run_round(self, trigger: str) -> float:
        """Start a pass over each service that is due, and submit due runs. Return the seconds until the
        next call.
        """
        assert self._threads is not None
        services = live_services()
        self._discard_ended_services({service.pk for service in services})
        for service in services:
            running = self._passes.get(service.pk)
            due = self._due.get(service.pk, 0.0) <= time.monotonic()
            if due and (running is None or running.done()):
                self._passes[service.pk] = self._threads.submit(self._run_pass, service)
        self._submit_runs()
        futures = [*self._passes.values(), *([self._schedules] if self._schedules else [])]
        is_busy = any(not future.done() for future in futures)
        return BUSY_SECONDS if is_busy else self._pause_seconds()

    def _submit_runs(self) -> None:
        """Submit the due runs of schedules in a thread, unless a thread is already doing so."""
        assert self._threads is not None
        is_busy = self._schedules is not None and not self._schedules.done()
        if not is_busy and has_due_runs(self.clock.now()):
            self._schedules = self._threads.submit(self._run_schedule_pass)

    def _run_schedule_pass(self) -> None:
        try:
            submit_due_runs(self.clock.now())
        except Exception:
            log.exception("the runs of schedules could not be submitted")
        finally:
            connection.close()

    def on_leadership_gained(self, held: HeldLease) -> None:
        reset_interrupted_syncs(self._fence)

    def trigger(self, waiter: Waiter, woken: WakeResult) -> str:
        if woken.reasons:
            self._due.clear()  # a request has arrived, so check every service
        return super(ServiceLoop, self).trigger(waiter, woken)

    def _discard_ended_services(self, live_ids: Collection[int]) -> None:
        """Remove the due times of ended services. Otherwise, these services would stay due."""
        for pk in [pk for pk, running in self._passes.items() if pk not in live_ids and running.done()]:
            del self._passes[pk]
            self._due.pop(pk, None)

    def _run_pass(self, service: Service) -> None:
        """Run one pass over a service in a thread with its own database connection."""
        seconds = IDLE_SECONDS
        try:
            with bound_contextvars(service=service.workload.handle), span("service pass") as trace:
                trace.set_attributes(berth__service=service.workload.handle)
                if run_pass(service, self.build_reconcile_context(self._fence), self.clock.now()):
                    seconds = BUSY_SECONDS
        except LeadershipLost as error:
            log.warning("lost the leadership: %s", error)
        except Service.DoesNotExist:
            log.info("a service was deleted during its pass")
        except Exception:
            log.exception("the pass over service %s failed", service.pk)
        finally:
            connection.close()
            self._due[service.pk] = time.monotonic() + seconds

    def _fence(self) -> AbstractContextManager[None]:
        held = self.held
        if held is None:
            raise LeadershipLost("this process is not the leader of the service loop")
        return fenced_transaction(held)

    def _pause_seconds(self) -> float:
        if not self._due:
            return EMPTY_SECONDS
        next_due = min(self._due.values())
        return min(max(next_due - time.monotonic(), 0.05), IDLE_SECONDS)
