"""State shared by all writes of one commit."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from projects.models import Workload
from projects.services.workloads.moves import move
from scheduler.loop.commit.bind import ACTOR, NewRows
from scheduler.loop.commit.locked_rows import LockedRows
from scheduler.loop.observe.view import ClusterView

Rendezvous = Mapping[str, str | int]  # address and port
NO_RENDEZVOUS: Mapping[str, Rendezvous] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CommitContext:
    view: ClusterView
    locked: LockedRows
    now: datetime
    cycle: int | None
    rendezvous: Mapping[str, Rendezvous] = field(default_factory=dict)
    new_rows: NewRows = field(default_factory=NewRows)


def transition(
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
    """Change a workload's phase. The row is locked and checked, so the change cannot be rejected."""
    moved = move(
        workload,
        expected=expected,
        to=to,
        reason=reason,
        message=message,
        actor=ACTOR,
        now=context.now,
        data={"cycle": context.cycle, **(data or {})},
        **columns,
    )
    assert moved, f"{workload} is in none of the expected phases {expected}"
    workload.phase = to
    for name, value in columns.items():
        setattr(workload, name, value)
