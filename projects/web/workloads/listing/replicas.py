"""Replica counts of workloads that can be scaled while they run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, F, Sum

from berth.core.wording.words import format_count
from projects.models import Pod, Workload, WorkloadKind, WorkloadRole
from projects.models.workloads import LIVE_POD_STATES

SCALED_KINDS = (WorkloadKind.ELASTIC, WorkloadKind.SERVICE)


@dataclass(frozen=True, slots=True)
class Replicas:
    current: int
    minimum: int
    maximum: int
    gpu_milli_max: int = 0  # milli-GPUs at the maximum number of replicas

    def __str__(self) -> str:
        return f"{self.current} ({self._range_text})"

    @property
    def phrase(self) -> str:
        """Return the replica counts as text, such as "4 replicas (min 4, max 7)"."""
        return f"{format_count(self.current, 'replica')} ({self._range_text})"

    @property
    def _range_text(self) -> str:
        return f"min {self.minimum}, max {self.maximum}"


def load_replicas(rows: Iterable[Workload]) -> Mapping[UUID, Replicas]:
    """Return the replica counts of elastic workloads and services that can be scaled."""
    scaled = [row.pk for row in rows if row.kind in SCALED_KINDS]
    if not scaled:
        return {}
    roles = WorkloadRole.objects.filter(workload__in=scaled).order_by().values("workload")
    live_pods = Pod.objects.filter(workload__in=scaled, state__in=LIVE_POD_STATES).order_by()
    current = dict(live_pods.values_list("workload").annotate(count=Count("pk")))
    ranges = roles.annotate(
        low=Sum("min"), high=Sum("max"), gpus=Sum(F("max") * F("gpu_devices") * F("gpu_milli"))
    )
    return {
        pk: Replicas(current.get(pk, 0), low, high, gpus)
        for pk, low, high, gpus in ranges.values_list("workload", "low", "high", "gpus")
        if low < high
    }
