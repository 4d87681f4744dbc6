"""Issue one-time links to workload ports, exchange them for port sessions, and check these sessions.

A port session ends after twelve hours, or sooner if its run ends or its user loses access.
"""

import hashlib
import ipaddress
import secrets
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from berth.core.errors import Conflict, Forbidden, NotFound
from berth.core.problems import format_value
from pools.joining.secrets import port_secret
from pools.services.access.kubernetes import connects_through_cluster
from projects.access import Action, may, require
from projects.actor import Actor
from projects.connections.credentials import Credential, load_active_user
from projects.models import Phase, Pod, PodState, PortLink, Workload
from projects.services import audit
from projects.services.people.tokens import has_session_hash

LINK_LIFETIME = timedelta(seconds=60)
PORT_SESSION_LIFETIME = timedelta(hours=12)
LAST_USED_INTERVAL = timedelta(minutes=1)
MAX_UNUSED_LINKS = 20  # maximum number of unused links per user and workload


@dataclass(frozen=True, slots=True)
class PortAddress:
    """Address of a pod's port, and the secret that authenticates Berth to the pod.

    If `tunnel_pod` is set, Berth connects through this pod's cluster.
    """

    host: str
    port: int
    secret: str
    tunnel_pod: str = ""

    @property
    def netloc(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class InvalidPortSession(Exception):
    """Raised if the request is not part of a valid port session."""


class PortClosed(Exception):
    """Raised if the user may open the port, but nothing listens on it."""


def declared_ports(workload: Workload) -> list[dict[str, Any]]:
    return list(workload.spec.get("ports") or [])


def issue_link(*, actor: Actor, workload: Workload, port: str, at: datetime) -> tuple[PortLink, str]:
    """Return a new link and its secret, which is not stored. Raises NotFound, Forbidden or Conflict."""
    require(actor, Action.OPERATE, workload)
    if actor.user is None:
        raise Forbidden("Only users can open ports. Sign in as a user.")
    if port not in (names := [declared["name"] for declared in declared_ports(workload)]):
        allowed = f"Use one of: {', '.join(names)}." if names else "The workload declares no ports."
        raise NotFound(f"{workload.name} has no port named {format_value(port[:80])}. {allowed}")
    if workload.phase != Phase.RUNNING:
        raise Conflict(
            f"{workload.name} is {workload.phase}. Ports can only be opened while the workload is running."
        )
    secret = secrets.token_urlsafe(32)
    until = (
        at + PORT_SESSION_LIFETIME
        if actor.token_expires_at is None
        else min(at + PORT_SESSION_LIFETIME, actor.token_expires_at)
    )
    with transaction.atomic():
        _limit_unused_links(actor.user, workload, at)
        link = PortLink.objects.create(
            digest=_hash_secret(secret), workload=workload, port=port, user=actor.user,
            session_hash=actor.user.get_session_auth_hash(), issued_at=at, expires_at=at + LINK_LIFETIME,
            session_until=until, token_id=actor.token_id, session_key=actor.session_key,
        )  # fmt: skip
        audit.write_entry(actor, "open_port", workload, after={"port": port}, project=workload.project)
    return link, secret


def redeem_link(secret: str, workload: uuid.UUID, port: str, at: datetime) -> str:
    """Exchange a link for a port session's secret. Each link works only once. Raises InvalidPortSession."""
    cookie = secrets.token_urlsafe(32)
    fresh = PortLink.objects.filter(
        digest=_hash_secret(secret), workload=workload, port=port, used_at__isnull=True, expires_at__gt=at
    )
    if not fresh.update(used_at=at, cookie_digest=_hash_secret(cookie), seen_at=at):
        raise InvalidPortSession
    return cookie


def resolve_port_session(cookie: str, workload: uuid.UUID, port: str, at: datetime) -> PortAddress:
    """Return the current address of a port session's port. Raises InvalidPortSession or PortClosed."""
    link = (
        PortLink.objects.select_related("user", "workload__project")
        .filter(cookie_digest=_hash_secret(cookie), workload=workload, port=port, session_until__gt=at)
        .first()
    )
    if link is None or not _is_allowed(link):
        raise InvalidPortSession
    if link.seen_at is None or at - link.seen_at >= LAST_USED_INTERVAL:
        PortLink.objects.filter(pk=link.pk).update(seen_at=at)
    return _pod_address(link)


def end_port_sessions(user: User) -> int:
    """End all of a user's port sessions. Return the number of ended sessions."""
    return PortLink.objects.filter(user=user).delete()[0]


def delete_links(*, before: datetime) -> int:
    return PortLink.objects.filter(session_until__lt=before).delete()[0]


def _is_allowed(link: PortLink) -> bool:
    user = link.user
    credential = Credential(session_key=link.session_key, token_id=link.token_id)
    if credential != Credential() and load_active_user(credential) is None:
        return False
    if not user.is_active or not has_session_hash(user, link.session_hash):
        return False
    return may(Actor.for_user(user), Action.OPERATE, link.workload)


def _pod_address(link: PortLink) -> PortAddress:
    pods = Pod.objects.select_related("node__pool").filter(
        workload=link.workload, run=link.workload.run, rank=0, state=PodState.RUNNING
    )
    pod = pods.first()
    address = (pod.ports or {}).get(link.port) if pod is not None else None
    if pod is None or address is None:
        raise PortClosed
    if connects_through_cluster(pod.node.pool):
        return PortAddress("", int(address["port"]), port_secret(str(pod.pk)), tunnel_pod=str(pod.pk))
    host = str(address["address"] or pod.address or pod.node.address)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise PortClosed from None
    return PortAddress(host, int(address["port"]), port_secret(str(pod.pk)))


def _limit_unused_links(user: User, workload: Workload, at: datetime) -> None:
    """Delete expired links. Raise Conflict if the user has too many unused links to the workload."""
    PortLink.objects.filter(user=user, workload=workload, used_at__isnull=True, expires_at__lte=at).delete()
    unused = PortLink.objects.filter(user=user, workload=workload, used_at__isnull=True)
    if unused.count() >= MAX_UNUSED_LINKS:
        raise Conflict(
            f"You have {MAX_UNUSED_LINKS} unused links to {workload.name}. Use one, or wait a minute."
        )


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
