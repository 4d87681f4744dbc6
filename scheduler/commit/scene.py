"""State shared by all writes of one commit."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from projects.models import Workload
from projects.services.workloads.moves import move
from scheduler.commit.bind import ACTOR, Bound
from scheduler.commit.ground import Ground
from scheduler.observe import Seen

Meeting = Mapping[str, str | int]  # address and port
NOWHERE: Mapping[str, Meeting] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Scene:
    seen: Seen
    ground: Ground
    now: datetime
    cycle: int | None
    meeting: Mapping[str, Meeting] = field(default_factory=dict)
    bound: Bound = field(default_factory=Bound)


def shift(
    workload: Workload,
    scene: Scene,
    *,
    expected: Collection[str],
    to: str,
    reason: str,
    message: str,
    data: dict[str, Any] | None = None,
    **columns: Any,
) -> None:
    """A move that cannot be refused: the row is locked and was judged."""
    told = {"cycle": scene.cycle, **(data or {})}
    moved = move(
        workload,
        expected=expected,
        to=to,
        reason=reason,
        message=message,
        actor=ACTOR,
        now=scene.now,
        data=told,
        **columns,
    )
    assert moved, f"{workload} was locked as one of {expected}"
    workload.phase = to
    for name, value in columns.items():
        setattr(workload, name, value)
