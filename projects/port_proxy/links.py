"""Issue one-time browser links to ports."""

from datetime import datetime

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from berth.core.errors import Conflict
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Workload
from projects.port_proxy.origins import Origins, parse_origins
from projects.port_proxy.proxy import OPEN_PREFIX
from projects.services.workloads.ports import issue_link

PORTS_UNAVAILABLE = (
    "Workload ports are not available on this installation. Ask its operator to set BERTH_APPS_ORIGIN."
)


def create_port_link(*, actor: Actor, workload: Workload, port: str, at: datetime) -> tuple[str, datetime]:
    """Issue a one-time link to the port and return its URL and expiry.

    Raises NotFound, Forbidden or Conflict.
    """
    require(actor, Action.OPERATE, workload)
    hosts = load_port_origins()
    if hosts is None:
        raise Conflict(PORTS_UNAVAILABLE)
    link, secret = issue_link(actor=actor, workload=workload, port=port, at=at)
    return hosts.origin_for(workload.pk, port) + OPEN_PREFIX + secret, link.expires_at


def load_port_origins() -> Origins | None:
    """Return the origins that the operator configured for ports, or None if ports are disabled."""
    try:
        return parse_origins(settings.BERTH_APPS_ORIGIN)
    except ValueError as error:
        raise ImproperlyConfigured(f"BERTH_APPS_ORIGIN {error}, not {settings.BERTH_APPS_ORIGIN!r}") from None
