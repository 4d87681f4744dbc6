"""The service process, which runs passes over services, each at its own pace."""

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
from berth.db.leader import LeaderLoop
from berth.db.lease import Held, LeadershipLost, fenced
from berth.db.wake import Waiter, Woken
from berth.server.tracing.spans import span
from projects.elastic.ports import Fence, Ports
from projects.elastic.step import live_services, step
from projects.elastic.weights import clear_marks
from projects.models import Service

log = logging.getLogger(__name__)

NAME = "services"
LEASE_SECONDS = 15.0
THREADS = 8
BUSY_SECONDS, IDLE_SECONDS = 0.3, 2.0


@dataclass(slots=True, kw_only=True)
class Rounds(LeaderLoop):
    """Leader loop over services. `ports` returns a pass's dependencies for the current leader's fence."""

    name: ClassVar[str] = NAME

    clock: Clock
    ports: Callable[[Fence], Ports]
    lease_seconds: float = LEASE_SECONDS
    _threads: ThreadPoolExecutor | None = None
    _due: dict[int, float] = field(default_factory=dict)
    _under_way: dict[int, Future[None]] = field(default_factory=dict)

    def run(self) -> None:
        """Work until `end`. Running passes end before the lease is released."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="service") as threads:
            self._threads = threads
            super(Rounds, self).run()

    def work(self, trigger: str) -> float:
        """Start a pass over each service that is due. Return the seconds until the next pass is due."""
        assert self._threads is not None
        services = live_services()
        self._forget_all_but({service.pk for service in services})
        for service in services:
            running = self._under_way.get(service.pk)
            due = self._due.get(service.pk, 0.0) <= time.monotonic()
            if due and (running is None or running.done()):
                self._under_way[service.pk] = self._threads.submit(self._carry, service)
        return (
            BUSY_SECONDS if any(not one.done() for one in self._under_way.values()) else self._pause_seconds()
        )

    def on_lead_gained(self, held: Held) -> None:
        clear_marks(self._fence)

    def trigger(self, waiter: Waiter, woken: Woken) -> str:
        if woken.reasons:
            self._due.clear()  # a request arrived: check every service
        return super(Rounds, self).trigger(waiter, woken)

    def _forget_all_but(self, living: Collection[int]) -> None:
        """Forget ended services, which would stay due, unless a pass is still running."""
        for pk in [pk for pk, running in self._under_way.items() if pk not in living and running.done()]:
            del self._under_way[pk]
            self._due.pop(pk, None)

    def _carry(self, service: Service) -> None:
        """Run one pass in a thread, with its own database connection."""
        seconds = IDLE_SECONDS
        try:
            with bound_contextvars(service=service.workload.handle), span("service pass") as traced:
                traced.set_attributes(berth__service=service.workload.handle)
                if step(service, self.ports(self._fence), self.clock.now()):
                    seconds = BUSY_SECONDS
        except LeadershipLost as error:
            log.warning("lost the lead: %s", error)
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
            raise LeadershipLost("this process does not lead the services")
        return fenced(held)

    def _pause_seconds(self) -> float:
        soonest = min(self._due.values(), default=time.monotonic() + IDLE_SECONDS)
        return min(max(soonest - time.monotonic(), 0.05), IDLE_SECONDS)
