"""Run the scheduler process until SIGTERM or SIGINT."""

import signal
from collections.abc import Mapping
from datetime import datetime
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from berth.core.garbage import defer_full_collections
from berth.db.loops.lease import HeldLease, fenced_transaction
from berth.server.tracing.spans import set_process_name
from pools.engine.victims import LostWork
from pools.models import NodePool
from pools.runtimes.capabilities import REMOTE_PROVIDERS
from projects.code.git.installation import git_policy, scratch_base
from scheduler.code import CodeFetcher
from scheduler.leftovers.outputs import OutputsCollector
from scheduler.leftovers.volumes import VolumesCollector
from scheduler.loop.leader import Scheduler
from scheduler.registries import HttpResolver
from scheduler.registries.http_client import RegistryAccess
from scheduler.reports.leased_thread import LeasedThread
from scheduler.reports.metrics.collector import MetricsCollector
from scheduler.reports.utilization.watch import UtilizationWatcher


class Command(BaseCommand):
    requires_system_checks = []  # system checks import every web page, so only `make check` runs them
    help = "Run the scheduler. Any number of processes may run. One of them leads and the others stand by."

    def handle(self, *args: Any, **options: Any) -> None:
        set_process_name("scheduler")
        scheduler = build_scheduler()
        defer_full_collections()

        def end(number: int, frame: FrameType | None) -> None:
            scheduler.end()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        threads = build_threads(scheduler)
        for thread in threads:
            thread.begin()
        scheduler.run()
        for thread in threads:
            thread.end()


def build_threads(scheduler: Scheduler) -> list[LeasedThread]:
    """Return the threads for utilization, metrics, outputs, volumes and code."""
    from berth.server.wiring import load_wiring

    wiring = load_wiring()

    def is_leader() -> bool:
        return scheduler.loop is not None

    return [
        UtilizationWatcher(wiring.clock, wiring.runtime_for, settings.BERTH_MEASURE_SECONDS, is_leader),
        MetricsCollector(wiring.clock, wiring.runtime_for, settings.BERTH_METRICS_SECONDS, is_leader),
        OutputsCollector(wiring.clock, wiring.runtime_for, settings.BERTH_OUTPUTS_SECONDS, is_leader),
        VolumesCollector(wiring.clock, wiring.runtime_for, settings.BERTH_OUTPUTS_SECONDS, is_leader),
        CodeFetcher(wiring.clock, git_policy, scratch_base(), settings.BERTH_GIT_FETCHES, is_leader),
    ]


def build_scheduler() -> Scheduler:
    from berth.server.wiring import load_wiring
    from pools.reconciler import reconcile
    from pools.reconciler.background import BackgroundReconciler

    wiring, background_reconciler = load_wiring(), BackgroundReconciler()

    def reconcile_pool(
        pool: NodePool, now: datetime, held_lease: HeldLease, work_to_lose: Mapping[int, LostWork]
    ) -> bool:
        provider = wiring.provider_for(pool)

        def run_reconciler_pass() -> bool:
            changed_at = wiring.instances_changed_at(pool)
            has_changed = reconcile(
                pool.pk,
                provider=provider,
                now=now,
                fence=lambda: fenced_transaction(held_lease),
                work_to_lose=work_to_lose,
                changed_at=changed_at,
            )
            # If instances have changed during this pass, the next pass must follow immediately.
            return has_changed or wiring.instances_changed_at(pool) != changed_at

        # A pass over remote machines may block, so it runs in the background.
        return (
            background_reconciler.reconcile(pool.pk, run_reconciler_pass)
            if pool.provider in REMOTE_PROVIDERS
            else run_reconciler_pass()
        )

    return Scheduler(
        clock=wiring.clock,
        runtime_for=wiring.runtime_for,
        reconcile_pool=reconcile_pool,
        runtimes=wiring.runtimes,
        images=HttpResolver(
            RegistryAccess(
                insecure=frozenset(settings.BERTH_INSECURE_REGISTRIES),
                own_ports=frozenset(settings.BERTH_OWN_PORTS),
            )
        ),
    )
