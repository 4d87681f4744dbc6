"""Thread that stores the outputs of pods that have ended."""

import logging
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.db.models import Q

from berth.db import lease
from berth.db.crash_points import assert_no_transaction, crash_point
from berth.db.lease import HeldLease, LeadershipLost, fenced_transaction
from pools.runtimes.base import FilesGone, RuntimeFailure
from projects.code.base import StoreFailure
from projects.models import OutputState, PodOutputs
from projects.models.workloads import LIVE_POD_STATES
from projects.services.outputs import OutputsRefused, store_files
from scheduler.reports.leased_thread import LEASE_INTERVALS, LeasedThread

log = logging.getLogger(__name__)

PAUSE, PAUSE_MAX = timedelta(seconds=15), timedelta(minutes=5)
GIVE_UP = timedelta(hours=6)  # maximum time after the pod has ended
PODS_PER_ROUND = 20
LEASE_SECONDS = 60.0  # longer than one read from a node and one write to the store


class OutputsCollector(LeasedThread):
    """Thread that copies declared outputs from nodes to the store. Interrupted copies are repeated."""

    lease_name: ClassVar[str] = "outputs"
    subject: ClassVar[str] = "the collection of outputs"

    @property
    def _ttl(self) -> float:
        return max(LEASE_SECONDS, LEASE_INTERVALS * self._seconds)

    def work(self, held: HeldLease) -> None:
        now = self._clock.now()
        rows = PodOutputs.objects.filter(state=OutputState.WAITING, pod__ended_at__isnull=False)
        rows = rows.filter(Q(retry_at__isnull=True) | Q(retry_at__lte=now))
        rows = rows.exclude(pod__state__in=LIVE_POD_STATES)
        related = rows.select_related("pod__workload__project", "pod__node__pool")
        for outputs in related.order_by("retry_at", "pod__ended_at")[:PODS_PER_ROUND]:
            self._collect(outputs, held)

    def _collect(self, outputs: PodOutputs, held: HeldLease) -> None:
        assert_no_transaction()
        pod, now = outputs.pod, self._clock.now()
        try:
            runtime = self._runtime_of(pod.node.pool)
            listing = runtime.list_files(str(pod.pk), outputs.paths)
            project = pod.workload.project
            tree = store_files(project, runtime, str(pod.pk), listing, now, lambda: self._renew(held))
        except (OutputsRefused, FilesGone) as error:
            self._finish(outputs, held, state=OutputState.FAILED, message=_sentence(error))
        except (RuntimeFailure, StoreFailure, LookupError, OSError) as error:
            self._postpone(outputs, held, now, error)
        else:
            crash_point("outputs.copied")
            message = (
                "" if tree is not None else "None of the declared paths is a file or a directory with files."
            )
            self._finish(
                outputs, held, state=OutputState.STORED, message=message, tree=tree, stored_at=now,
                skipped=dict(listing.skipped),
            )  # fmt: skip

    def _renew(self, held: HeldLease) -> None:
        if self._stop_requested.is_set() or not lease.renew(held, self._ttl):
            raise LeadershipLost("copying the outputs was interrupted and will be retried")

    def _postpone(self, outputs: PodOutputs, held: HeldLease, now: datetime, error: Exception) -> None:
        """Schedule another attempt. Give up if the pod ended more than GIVE_UP ago."""
        ended_at = outputs.pod.ended_at or now
        if now - ended_at >= GIVE_UP:
            self._finish(outputs, held, state=OutputState.FAILED, message=_sentence(error))
            return
        log.warning("the outputs of the pod %s cannot be stored now: %s", outputs.pk, error)
        pause = min(PAUSE * 2.0 ** min(outputs.attempts, 10), PAUSE_MAX)
        message = f"{_sentence(error)} Berth tries again."
        self._finish(outputs, held, message=message, attempts=outputs.attempts + 1, retry_at=now + pause)

    def _finish(self, outputs: PodOutputs, held: HeldLease, **columns: Any) -> None:
        """Update the row, unless the workload was deleted or another process has stored the outputs."""
        with fenced_transaction(held):
            PodOutputs.objects.filter(pk=outputs.pk, state=OutputState.WAITING).update(**columns)


def _sentence(error: Exception) -> str:
    detail = str(getattr(error, "detail", "") or error)[:500]
    return f"{detail[:1].upper()}{detail[1:]}{'' if detail.endswith('.') else '.'}"
