"""Dependencies of workloads that have not completed."""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.db.models import Q

from projects.models import Phase, Workload
from scheduler.engine import model
from scheduler.queues import Queues
from scheduler.specs import NOTHING_TO_RUN, Meaning
from scheduler.work import WorkloadRow


@dataclass(frozen=True, slots=True)
class Waits:
    """Handles by the waiting workload's id, and stand-ins for those the snapshot would not show.

    `unsubmitted` are those of `unmet` that have not been submitted, for example because a name is mistyped.

    Somebody who failed, was cancelled, is suspended or never was will not complete by itself: a
    suspended stand-in keeps those who wait for it waiting.
    """

    unmet: Mapping[uuid.UUID, tuple[str, ...]]
    unsubmitted: Mapping[uuid.UUID, tuple[str, ...]]
    stand_ins: tuple[model.Workload, ...]


def find_waits(
    rows: Collection[WorkloadRow],
    meanings: Mapping[uuid.UUID, Meaning],
    shown: Collection[str],
    queues: Queues,
) -> Waits:
    asking = [
        (row, spec.depends_on)
        for row in rows
        if (spec := meanings[row.pk].spec) is not None and spec.depends_on
    ]
    if not asking:
        return Waits({}, {}, ())
    newest = _newest(asking)
    unmet: dict[uuid.UUID, tuple[str, ...]] = {}
    unsubmitted: dict[uuid.UUID, tuple[str, ...]] = {}
    stand_ins: dict[str, model.Workload] = {}
    for row, names in asking:
        project = queues.projects[row.project_id]
        missing = [name for name in names if newest.get((row.project_id, name)) != Phase.COMPLETED]
        unmet[row.pk] = tuple(f"{project}/{name}" for name in missing)
        unsubmitted[row.pk] = tuple(
            f"{project}/{name}" for name in missing if (row.project_id, name) not in newest
        )
        for handle in unmet[row.pk]:
            if handle not in shown:
                stand_ins[handle] = _stand_in(handle, project, tuple(row.pools))
    return Waits(unmet, unsubmitted, tuple(stand_ins[handle] for handle in sorted(stand_ins)))


def _newest(asking: Collection[tuple[WorkloadRow, tuple[str, ...]]]) -> dict[tuple[int, str], str]:
    """The phase of the newest workload of each name asked for."""
    wanted = Q()
    for row, names in asking:
        wanted |= Q(project_id=row.project_id, name__in=names)
    found = Workload.objects.filter(wanted).order_by("submitted_at", "pk")
    return {
        (project, name): phase for project, name, phase in found.values_list("project_id", "name", "phase")
    }


def _stand_in(handle: str, project: str, pools: tuple[str, ...]) -> model.Workload:
    return model.Workload(handle, project, NOTHING_TO_RUN, pools, suspended=True)
