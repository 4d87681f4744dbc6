"""State shared by all writes of one commit."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from projects.models import Workload
from projects.services.workloads.phase_transitions import PhaseTransition
from scheduler.loop.commit.bind import NewRows
from scheduler.loop.commit.locked_rows import LockedRows
from scheduler.loop.observe.view import ClusterView

Rendezvous = Mapping[str, str | int]  # address and port of a rendezvous
NO_RENDEZVOUS: Mapping[str, Rendezvous] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CommitContext:
    view: ClusterView
    locked: LockedRows
    now: datetime
    cycle: int | None
    rendezvous: Mapping[str, Rendezvous]
    new_rows: NewRows


def add_phase_change(
    workload: Workload,
    context: CommitContext,
    *,
    expected: Collection[str],
    to: str,
    reason: str,
    message: str,
    data: dict[str, Any] | None = None,
    **columns: Any,
) -> None:
    """Add a workload's phase change to the commit.

    The caller must have locked and checked the workload's row.
    """
    assert workload.phase in expected, f"{workload} is in none of the expected phases {expected}"
    data = {"cycle": context.cycle, **(data or {})}
    context.new_rows.add_transition(
        PhaseTransition(workload, [workload.phase], to, reason, message, data, columns)
    )
