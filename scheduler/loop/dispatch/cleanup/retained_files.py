"""Keep the files of failed pods on their nodes for the time that the workload documents specify."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django.conf import settings

from berth.db.writes.moves import RowChange, change_rows
from projects.models import Pod, PodState, Workload
from projects.services.retained_files import release_excess_files
from scheduler.loop.observe.specs import SpecCache


def keep_files(
    failed: Mapping[uuid.UUID, Sequence[uuid.UUID]], workloads: Iterable[Workload], now: datetime,
    specs: SpecCache,
) -> None:  # fmt: skip
    """Keep the files of failed pods if their workload sets `keep_failed_pod`.

    `failed` maps workload IDs to pod IDs. Must be called in the transaction that records that the pods have
    ended.
    """
    rows: list[RowChange] = []
    keeping: list[Workload] = []
    for workload in workloads:
        spec = specs.get(workload).spec if workload.pk in failed else None
        if spec is not None and spec.keep_failed_pod is not None:
            seconds = min(spec.keep_failed_pod, settings.BERTH_KEEP_FAILED_POD_SECONDS)
            until = {"files_until": now + timedelta(seconds=seconds)}
            rows += [RowChange(pod, [PodState.FAILED], until) for pod in failed[workload.pk]]
            keeping.append(workload)
    if rows:
        change_rows(Pod, "state", rows)
        release_excess_files(keeping, now)
