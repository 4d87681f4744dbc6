"""Carry all services in one process, each at its own pace."""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from django.db import DatabaseError, InterfaceError, OperationalError, connection
from structlog.contextvars import bound_contextvars

from berth.core.clock import Clock
from berth.db import lease
from berth.db.lease import Held, LeadershipLost, fenced
from berth.db.wake import Waiter
from berth.server.tracing.spans import span
from projects.elastic.ports import Fence, Ports
from projects.elastic.step import living, step
from projects.elastic.weights import forget_marks
from projects.models import Service

log = logging.getLogger(__name__)

NAME = "services"
LEASE_SECONDS = 15.0
AT_ONCE = 8
BUSY_SECONDS, IDLE_SECONDS, STANDBY_SECONDS = 0.3, 2.0, 1.0


@dataclass(slots=True)
class Rounds:
    """`ports` makes what a pass works with, given the fence of the present lead."""

    clock: Clock
    ports: Callable[[Fence], Ports]
    holder: str = field(default_factory=lease.this_process)
    lease_seconds: float = LEASE_SECONDS
    held: Held | None = None
    _renewed: float = 0.0
    _due: dict[int, float] = field(default_factory=dict)
    _under_way: dict[int, Future[None]] = field(default_factory=dict)
    _told_to_end: bool = False
    _bell: int = field(default_factory=lambda: os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def end(self) -> None:
        """May be called by a signal handler: passes under way end, then the lead is released."""
        self._told_to_end = True
        os.eventfd_write(self._bell, 1)

    def run(self) -> None:
        with (
            ThreadPoolExecutor(AT_ONCE, thread_name_prefix="service") as crew,
            contextlib.ExitStack() as stack,
        ):
            waiter: Waiter | None = None
            while not self._told_to_end:
                seconds = self._guarded(crew)
                waiter = waiter or self._listening(stack)
                self._sleep(waiter, seconds)
        self._release()

    def round(self, crew: ThreadPoolExecutor) -> float:
        """Hands out what is due. Returns for how long there is nothing to hand out."""
        if not self._leads():
            return STANDBY_SECONDS
        found = living()
        self._forget_all_but({service.pk for service in found})
        for service in found:
            running = self._under_way.get(service.pk)
            due = self._due.get(service.pk, 0.0) <= time.monotonic()
            if due and (running is None or running.done()):
                self._under_way[service.pk] = crew.submit(self._carry, service)
        return BUSY_SECONDS if any(not one.done() for one in self._under_way.values()) else self._rest()

    def _forget_all_but(self, living: Collection[int]) -> None:
        """Who has ended is due for ever and would leave no rest; a pass under way still says when it ends."""
        for pk in [pk for pk, running in self._under_way.items() if pk not in living and running.done()]:
            del self._under_way[pk]
            self._due.pop(pk, None)

    def _carry(self, service: Service) -> None:
        """One pass, in a thread of its own, with a connection of its own."""
        seconds = IDLE_SECONDS
        try:
            with bound_contextvars(service=service.workload.handle), span("service pass") as told:
                told.tell(berth__service=service.workload.handle)
                if step(service, self.ports(self._fence), self.clock.now()):
                    seconds = BUSY_SECONDS
        except LeadershipLost as lost:
            log.warning("no longer leading: %s", lost)
        except Service.DoesNotExist:
            log.info("a service was deleted meanwhile")
        except Exception:
            log.exception("the service %s could not be carried on", service.pk)
        finally:
            connection.close()
            self._due[service.pk] = time.monotonic() + seconds

    def _fence(self) -> AbstractContextManager[None]:
        held = self.held
        if held is None:
            raise LeadershipLost("the lead of services is another's")
        return fenced(held)

    def _leads(self) -> bool:
        now = time.monotonic()
        if self.held is not None and now - self._renewed < self.lease_seconds / 3:
            return True
        if self.held is not None and lease.renew(self.held, self.lease_seconds):
            self._renewed = now
            return True
        self.held = lease.acquire(NAME, self.holder, self.lease_seconds)
        if self.held is not None:
            log.info("leading in epoch %d", self.held.epoch)
            self._renewed = now
            forget_marks(self._fence)
        return self.held is not None

    def _rest(self) -> float:
        soonest = min(self._due.values(), default=time.monotonic() + IDLE_SECONDS)
        return min(max(soonest - time.monotonic(), 0.05), IDLE_SECONDS)

    def _guarded(self, crew: ThreadPoolExecutor) -> float:
        try:
            return self.round(crew)
        except (OperationalError, InterfaceError) as error:
            log.warning("the database is away: %s", error)
            connection.close()
            return STANDBY_SECONDS

    def _listening(self, stack: contextlib.ExitStack) -> Waiter | None:
        try:
            return stack.enter_context(Waiter(NAME, [self._bell]))
        except (DatabaseError, OSError) as error:
            log.warning("not listening yet: %s", error)
            return None

    def _sleep(self, waiter: Waiter | None, seconds: float) -> None:
        if waiter is None:
            time.sleep(seconds)
        elif waiter.wait(seconds).reasons:
            self._due.clear()  # somebody asked for something: every service is looked at

    def _release(self) -> None:
        if self.held is not None:
            with contextlib.suppress(DatabaseError, InterfaceError):
                lease.release(self.held)
        self.held = None
