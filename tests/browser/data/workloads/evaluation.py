"""Browser test data: explanations of pending workloads, computed by the engine."""

from typing import Any

from django.db import transaction
from django.utils import timezone

from projects.models import Phase, Workload
from scheduler.engine.decide import decide
from scheduler.engine.forecast import forecasts
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import observe
from scheduler.models import Reservation
from scheduler.reports.explanations.writer import ExplanationWriter
from scheduler.reports.queues.queue_statuses import store_queue_statuses
from scheduler.reports.queues.queue_totals import totals_by_queue
from tests import factories as make
from tests.browser.data.decisions import LAST_CYCLE

RESERVED = "Reserved: 8 pods with 8 GPUs on train-3. The workload starts once 1 node has booted."


def reserve_booting_node(scene: Any) -> None:
    workload, node = scene.workloads["asr-pretrain"], scene.pools["train"].nodes.get(state="booting")
    Workload.objects.filter(pk=workload.pk).update(
        phase=Phase.RESERVED, reason="WaitingForScaleUp", message=RESERVED, since=node.created_at
    )
    make.event(workload, "reserved", RESERVED, at=node.created_at)
    Reservation.objects.bulk_create(
        Reservation(workload=workload, role="worker", index=n, node=node, devices=[n], gpu_milli=1000)
        for n in range(8)
    )


def evaluate() -> None:
    """Store the explanations and queue statuses of a cycle that starts no workload."""
    view = observe(timezone.now(), SpecCache())
    plan = decide(view.snapshot)
    assert not plan.bundles, plan.bundles
    with transaction.atomic():
        store_queue_statuses(view, plan.queues, totals_by_queue())
        writer = ExplanationWriter()
        for _ in writer.select_changes(view, plan.rejections, forecasts(view.snapshot, plan)):
            pass
        writer.write_batch(view.at, LAST_CYCLE)
