"""Run the scheduler process until SIGTERM or SIGINT."""

import signal
from collections.abc import Mapping
from datetime import datetime
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from berth.core.garbage import collect_rarely
from berth.db.lease import Held, fenced
from berth.server.tracing.spans import this_process_is
from pools.engine.victims import Work
from pools.models import NodePool
from pools.runtimes.capabilities import REMOTE_PROVIDERS
from scheduler.loop.leader import Scheduler
from scheduler.reports.utilization.watch import UseWatch


class Command(BaseCommand):
    requires_system_checks = []  # system checks load every web page; `make check` runs them
    help = "Run the scheduler. Any number of processes may run; one leads, the others stand by."

    def handle(self, *args: Any, **options: Any) -> None:
        this_process_is("scheduler")
        collect_rarely()
        scheduler = build_scheduler()

        def end(number: int, frame: FrameType | None) -> None:
            scheduler.end()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        use = build_watch(scheduler)
        use.begin()
        scheduler.run()
        use.end()


def build_watch(scheduler: Scheduler) -> UseWatch:
    from berth.server.wiring import wired

    wiring = wired()
    return UseWatch(
        wiring.clock,
        wiring.runtime_of,
        settings.BERTH_MEASURE_SECONDS,
        leads=lambda: scheduler.loop is not None,
    )


def build_scheduler() -> Scheduler:
    from berth.server.wiring import wired
    from pools.reconciler import reconcile
    from pools.reconciler.background import BackgroundReconciler

    wiring, apart = wired(), BackgroundReconciler()

    def reconcile_pool(pool: NodePool, now: datetime, held: Held, work_to_lose: Mapping[int, Work]) -> bool:
        provider = wiring.provider_of(pool)

        def one_pass() -> bool:
            return reconcile(
                pool.pk, provider=provider, now=now, fence=lambda: fenced(held), work_to_lose=work_to_lose
            )

        # A pass over remote machines may wait for them.
        return apart.reconcile(pool.pk, one_pass) if pool.provider in REMOTE_PROVIDERS else one_pass()

    return Scheduler(
        clock=wiring.clock,
        runtime_of=wiring.runtime_of,
        reconcile_pool=reconcile_pool,
        runtimes=wiring.runtimes,
    )
