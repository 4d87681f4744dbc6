"""Permission for channels to a workload's pods, and the audit entries of channels.

The entries name the kind of channel, the pod and the duration, but never the command, paths or contents.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from berth.core.errors import Conflict, Malformed
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Phase, Pod, Workload
from projects.services import audit


def require_channel(actor: Actor, workload: Workload) -> None:
    """Raise NotFound, Forbidden, or Conflict if the workload is not running."""
    require(actor, Action.OPERATE, workload)
    if workload.phase != Phase.RUNNING:
        raise Conflict(
            f"{workload.name} is {workload.phase}. Commands can only be run in a workload that is running."
        )


@dataclass(frozen=True, slots=True)
class ChannelUse:
    """Use of a channel, with details for the audit log."""

    noun: str
    details: Mapping[str, object] = field(default_factory=dict)


USES: Mapping[str, ChannelUse] = {
    "command": ChannelUse("shell"),
    "copy_to": ChannelUse("copy", {"direction": "to pod"}),
    "copy_from": ChannelUse("copy", {"direction": "from pod"}),
}


def find_use(request: bytes) -> ChannelUse:
    """Return the use that a channel's request states. Raises Malformed."""
    try:
        keys = USES.keys() & json.loads(request).keys()
    except (ValueError, AttributeError):
        raise Malformed("The request is not a JSON object.") from None
    if len(keys) != 1:
        raise Malformed(f"The request needs exactly one of the keys {', '.join(USES)}.")
    return USES[keys.pop()]


def record_opened(*, actor: Actor, pod: Pod, use: ChannelUse) -> None:
    with transaction.atomic():
        after = _describe(pod, use)
        audit.write_entry(actor, f"open {use.noun}", pod.workload, after=after, project=pod.workload.project)


def record_closed(
    *, actor: Actor, pod: Pod, use: ChannelUse, opened_at: datetime, closed_at: datetime,
    exit_code: int | None,
) -> None:  # fmt: skip
    seconds = max(round((closed_at - opened_at).total_seconds()), 0)
    after = {**_describe(pod, use), "seconds": seconds, "exit_code": exit_code}
    with transaction.atomic():
        audit.write_entry(actor, f"close {use.noun}", pod.workload, after=after, project=pod.workload.project)


def _describe(pod: Pod, use: ChannelUse) -> dict[str, object]:
    return {"pod": f"{pod.role}-{pod.index}", "run": pod.run, **use.details}
