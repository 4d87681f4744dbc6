"""Issue one-time links to ports of workloads, exchange them for visits, and check visits.

A visit is checked again and again. It ends with the session or the token that asked for it, with the person's
right to act on the workload, with a changed password, with a closed account, with the run that had the port,
and after half a day in any case.
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
from berth.core.problems import shown
from pools.joining.secrets import for_port
from projects.access import Action, may, require
from projects.acting import Acting
from projects.connections.credentials import Credential, person_behind
from projects.models import Phase, Pod, PodState, PortLink, Workload
from projects.services import audit
from projects.services.people.tokens import has_session_hash

LINK_LASTS = timedelta(seconds=60)
VISIT_LASTS = timedelta(hours=12)
SEEN_EVERY = timedelta(minutes=1)
HELD_READY = 20  # links of one person for one workload that nobody used yet


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod answers, and what it knows us by."""

    host: str
    port: int
    secret: str

    @property
    def netloc(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NoVisit(Exception):
    """Whoever comes has no visit here, or no longer."""


class NotThere(Exception):
    """The visit counts, but nothing answers at the port now."""


def declared(workload: Workload) -> list[dict[str, Any]]:
    return list(workload.spec.get("ports") or [])


def issue_link(*, acting: Acting, workload: Workload, port: str, at: datetime) -> tuple[PortLink, str]:
    """The link and its secret, which is said this once. Raises NotFound, Forbidden, Conflict."""
    require(acting, Action.OPERATE, workload)
    if acting.user is None:
        raise Forbidden("Only people open ports.")
    if port not in (names := [each["name"] for each in declared(workload)]):
        told = f"it has {', '.join(names)}" if names else "its document names none"
        raise NotFound(f"{workload.name} has no port {shown(port[:80])}; {told}.")
    if workload.phase != Phase.RUNNING:
        raise Conflict(f"{workload.name} is {workload.phase}: its ports can be opened while it is running.")
    secret = secrets.token_urlsafe(32)
    until = at + VISIT_LASTS if acting.until is None else min(at + VISIT_LASTS, acting.until)
    with transaction.atomic():
        _make_room(acting.user, workload, at)
        link = PortLink.objects.create(
            digest=_digest(secret), workload=workload, port=port, user=acting.user,
            session_hash=acting.user.get_session_auth_hash(), issued_at=at, expires_at=at + LINK_LASTS,
            visit_until=until, token_id=acting.token_id, session_key=acting.session_key,
        )  # fmt: skip
        audit.write_down(acting, "open port", workload, after={"port": port}, project=workload.project)
    return link, secret


def use_link(secret: str, workload: uuid.UUID, port: str, at: datetime) -> str:
    """The visit's own secret. Of two who come with the same link one gets in. Raises NoVisit."""
    cookie = secrets.token_urlsafe(32)
    fresh = PortLink.objects.filter(
        digest=_digest(secret), workload=workload, port=port, used_at__isnull=True, expires_at__gt=at
    )
    if not fresh.update(used_at=at, cookie_digest=_digest(cookie), seen_at=at):
        raise NoVisit
    return cookie


def visited(cookie: str, workload: uuid.UUID, port: str, at: datetime) -> Place:
    """Where this visit leads now. Raises NoVisit, NotThere."""
    link = (
        PortLink.objects.select_related("user", "workload__project")
        .filter(cookie_digest=_digest(cookie), workload=workload, port=port, visit_until__gt=at)
        .first()
    )
    if link is None or not _still_may(link):
        raise NoVisit
    if link.seen_at is None or at - link.seen_at >= SEEN_EVERY:
        PortLink.objects.filter(pk=link.pk).update(seen_at=at)
    return _place(link)


def end_visits(user: User) -> int:
    """Those who sign out leave nothing open."""
    return PortLink.objects.filter(user=user).delete()[0]


def forget_links(*, before: datetime) -> int:
    return PortLink.objects.filter(visit_until__lt=before).delete()[0]


def _still_may(link: PortLink) -> bool:
    person = link.user
    opened_with = Credential(session_key=link.session_key, token_id=link.token_id)
    if opened_with != Credential() and person_behind(opened_with) is None:
        return False
    if not person.is_active or not has_session_hash(person, link.session_hash):
        return False
    return may(Acting.person(person), Action.OPERATE, link.workload)


def _place(link: PortLink) -> Place:
    pods = Pod.objects.select_related("node").filter(
        workload=link.workload, run=link.workload.run, rank=0, state=PodState.RUNNING
    )
    pod = pods.first()
    found = (pod.ports or {}).get(link.port) if pod is not None else None
    if pod is None or found is None:
        raise NotThere
    host = str(found["address"] or pod.node.address)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise NotThere from None
    return Place(host, int(found["port"]), for_port(str(pod.pk)))


def _make_room(user: User, workload: Workload, at: datetime) -> None:
    """A program that asks for links and never uses them keeps no more than some."""
    PortLink.objects.filter(user=user, workload=workload, used_at__isnull=True, expires_at__lte=at).delete()
    unused = PortLink.objects.filter(user=user, workload=workload, used_at__isnull=True)
    if unused.count() >= HELD_READY:
        raise Conflict(f"{HELD_READY} links to {workload.name} wait to be used: use one, or wait a minute.")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
