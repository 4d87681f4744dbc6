"""Authorize and audit changes of pools and nodes on behalf of the layer below."""

from typing import Any

from django.dispatch import receiver

from pools import signals
from projects.access import Action, require
from projects.acting import Acting
from projects.services import announce, audit


@receiver(signals.changed)
def check_and_write_down(
    sender: Any, *, acting: Acting, action: str, obj: Any, before: Any = None, after: Any = None, **_: Any
) -> None:
    """Runs inside the change's own transaction: a refusal undoes it."""
    require(acting, Action.ADMINISTER)
    if not acting.is_system:
        audit.write_down(acting, action, obj, before=before, after=after)
    announce.tenants_changed()
