"""Base class of the threads that store files of finished pods."""

import logging
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.db.models import Q, QuerySet

from berth.db.loops import lease
from berth.db.loops.lease import HeldLease, LeadershipLost, fenced_transaction
from berth.db.queries import prepared
from projects.models import OutputState, PodOutputs
from projects.models.workloads import LIVE_POD_STATES
from scheduler.reports.leased_thread import LEASE_INTERVALS, LeasedThread

log = logging.getLogger(__name__)

PAUSE, PAUSE_MAX = timedelta(seconds=15), timedelta(minutes=5)
GIVE_UP = timedelta(hours=6)  # maximum time for copying after the pod has ended
WAITING = "SELECT EXISTS (SELECT FROM projects_podoutputs WHERE state = %(state)s AND {condition})"
LEASE_SECONDS = 60.0  # longer than reading from a node and writing to the store can take


class LeftoversCollector(LeasedThread):
    """Thread that copies files of finished pods from their nodes and resumes after interruptions."""

    waiting: ClassVar[str]  # query that returns whether any files are waiting to be copied

    def has_work(self) -> bool:
        return bool(prepared.fetch_all(self.waiting, {"state": OutputState.WAITING})[0][0])

    @property
    def _lease_ttl(self) -> float:
        return max(LEASE_SECONDS, LEASE_INTERVALS * self._seconds)

    def _due_outputs(self, now: datetime) -> QuerySet[PodOutputs]:
        rows = PodOutputs.objects.filter(state=OutputState.WAITING, pod__ended_at__isnull=False)
        rows = rows.filter(Q(retry_at__isnull=True) | Q(retry_at__lte=now))
        rows = rows.exclude(pod__state__in=LIVE_POD_STATES)
        return rows.select_related("pod__workload__project", "pod__node__pool")

    def _renew_lease(self, held: HeldLease) -> None:
        if self._stop_requested.is_set() or not lease.renew(held, self._lease_ttl):
            raise LeadershipLost("copying pod files was interrupted and will be resumed")

    def _postpone(self, outputs: PodOutputs, held: HeldLease, now: datetime, error: Exception) -> None:
        """Schedule another attempt, or give up if the pod ended more than GIVE_UP ago."""
        pod = outputs.pod
        if now - (pod.ended_at or now) >= GIVE_UP:
            self._give_up(outputs, held, error)
            return
        log.warning("files of the pod %s cannot be stored now: %s", pod.pk, error)
        pause = min(PAUSE * 2.0 ** min(outputs.attempts, 10), PAUSE_MAX)
        message = f"{error_sentence(error)} Berth tries again."
        self._update_if_waiting(
            outputs, held, message=message, attempts=outputs.attempts + 1, retry_at=now + pause
        )

    def _give_up(self, outputs: PodOutputs, held: HeldLease, error: Exception) -> None:
        """Stop trying to store the files, so that the node may delete them."""
        self._update_if_waiting(outputs, held, state=OutputState.FAILED, message=error_sentence(error))

    def _update_if_waiting(self, outputs: PodOutputs, held: HeldLease, **columns: Any) -> bool:
        """Update the row of a pod's outputs.

        Return False if the workload was deleted or another process has already stored the files.
        """
        with fenced_transaction(held):
            rows = PodOutputs.objects.filter(pk=outputs.pk, state=OutputState.WAITING)
            return bool(rows.update(**columns))


def error_sentence(error: Exception) -> str:
    """Format an error's message as a sentence of at most 500 characters."""
    detail = str(getattr(error, "detail", "") or error)[:500]
    return f"{detail[:1].upper()}{detail[1:]}{'' if detail.endswith('.') else '.'}"
