"""Authorize and audit channels to a workload's pods.

Audit entries never contain the command, paths or contents.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, cast

from django.db import transaction
from django.db.models import QuerySet

from berth.core.errors import Conflict, Malformed
from projects.access import Action, require
from projects.actor import Actor
from projects.models import OpenChannel, Phase, Pod, Project, Workload
from projects.services import audit

ABANDONED_AFTER = timedelta(minutes=5)  # web processes record about once a minute that a channel is open
BATCH = 500  # number of channels loaded at a time


def require_channel(actor: Actor, workload: Workload) -> None:
    """Raise NotFound or Forbidden if the user may not operate the workload, and Conflict if it is
    not running.
    """
    require(actor, Action.OPERATE, workload)
    if workload.phase != Phase.RUNNING:
        raise Conflict(
            f"{workload.name} is {workload.phase}. Commands can only be run while the workload is running."
        )


@dataclass(frozen=True, slots=True)
class ChannelUse:
    """Purpose of a channel, with details for the audit log."""

    noun: str
    details: Mapping[str, object] = field(default_factory=dict)


USES: Mapping[str, ChannelUse] = {
    "command": ChannelUse("shell"),
    "copy_to": ChannelUse("copy", {"direction": "to pod"}),
    "copy_from": ChannelUse("copy", {"direction": "from pod"}),
    "connect": ChannelUse("forward"),
    "ssh": ChannelUse("ssh"),
    "sftp": ChannelUse("sftp"),
}


PORT_TEXT_MAX = 15  # maximum characters in a port's name or number


def parse_channel_use(request: bytes) -> ChannelUse:
    """Return the purpose of a channel, as stated in its request. Raises Malformed."""
    try:
        values = json.loads(request)
        keys = USES.keys() & values.keys()
    except (ValueError, AttributeError, RecursionError):
        raise Malformed("The request is not a JSON object.") from None
    if len(keys) != 1:
        raise Malformed(f"The request must contain exactly one of the keys {', '.join(USES)}.")
    if keys == {"connect"}:
        return ChannelUse("forward", {"port": str(values["connect"])[:PORT_TEXT_MAX]})
    return USES[keys.pop()]


def record_opened_channel(*, actor: Actor, pod: Pod, use: ChannelUse, at: datetime) -> OpenChannel:
    details = {"pod": f"{pod.role}-{pod.index}", "run": pod.run, **use.details}
    with transaction.atomic():
        channel = OpenChannel.objects.create(
            actor=actor.name, request_id=actor.request_id, workload=pod.workload.pk,
            workload_name=pod.workload.name, project=pod.workload.project, noun=use.noun,
            details=details, opened_at=at, seen_at=at,
        )  # fmt: skip
        audit.write_entry(
            actor, _audit_action("open", use.noun), pod.workload, after=details, project=pod.workload.project
        )
    return channel


def record_open_channel(channel: OpenChannel, at: datetime) -> None:
    """Record that the channel is still open."""
    OpenChannel.objects.filter(pk=channel.pk).update(seen_at=at)


def record_closed_channel(*, channel: OpenChannel, at: datetime, exit_code: int | None) -> None:
    """Record the end of a channel, unless `close_abandoned_channels` has already recorded it."""
    _record_end(OpenChannel.objects.all(), channel, at, exit_code)


def close_abandoned_channels(at: datetime) -> int:
    """Record channels as closed if their web process was killed. Return the number of these channels."""
    unseen = OpenChannel.objects.filter(seen_at__lt=at - ABANDONED_AFTER)
    count = 0
    while channels := list(unseen[:BATCH]):
        for channel in channels:
            count += _record_end(unseen, channel, channel.seen_at, None)
    return count


def _record_end(
    rows: QuerySet[OpenChannel], channel: OpenChannel, at: datetime, exit_code: int | None
) -> bool:
    """Delete the channel and write to the audit log. Return False if it was already deleted."""
    actor = Actor(None, channel.actor, request_id=channel.request_id)
    # The workload's row may have been deleted.
    workload = Workload(pk=channel.workload, name=channel.workload_name)
    seconds = max(round((at - channel.opened_at).total_seconds()), 0)
    after = {**channel.details, "seconds": seconds, "exit_code": exit_code}
    with transaction.atomic():
        if not rows.filter(pk=channel.pk).delete()[0]:
            return False
        project = Project.objects.filter(pk__in=[channel.project_id]).first()
        audit.write_entry(actor, _audit_action("close", channel.noun), workload, after=after, project=project)
        return True


def _audit_action(verb: Literal["open", "close"], noun: str) -> audit.AuditAction:
    return cast("audit.AuditAction", f"{verb}_{noun}")
