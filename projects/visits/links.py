"""Build the browser address of a port link."""

from datetime import datetime

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from berth.core.errors import Conflict
from projects.access import Action, require
from projects.acting import Acting
from projects.models import Workload
from projects.services.workloads.ports import issue_link
from projects.visits.origins import Origins, origins
from projects.visits.proxy import OPEN

NO_HOSTS = "Workload ports are not available on this installation. Ask its operator to set BERTH_APPS_ORIGIN."


def link_to(*, acting: Acting, workload: Workload, port: str, at: datetime) -> tuple[str, datetime]:
    """Return a URL that opens the port, and its expiry. Raises NotFound, Forbidden, Conflict."""
    require(acting, Action.OPERATE, workload)
    hosts = hosts_for_ports()
    if hosts is None:
        raise Conflict(NO_HOSTS)
    link, secret = issue_link(acting=acting, workload=workload, port=port, at=at)
    return hosts.of(workload.pk, port) + OPEN + secret, link.expires_at


def hosts_for_ports() -> Origins | None:
    """Return the port hosts set by the operator, or None if ports are unavailable."""
    try:
        return origins(settings.BERTH_APPS_ORIGIN)
    except ValueError as error:
        raise ImproperlyConfigured(f"BERTH_APPS_ORIGIN {error}, not {settings.BERTH_APPS_ORIGIN!r}") from None
