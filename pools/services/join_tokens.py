"""Issue and revoke join tokens; only a digest is stored."""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, shown
from pools.joining import secrets
from pools.models import JoinToken, NodePool
from pools.signals import changed

LIFE_MAX = timedelta(days=7)
SHOWN = 10  # characters of the secret, its kind included


def issue_join_token(
    *, acting: Any, pool: NodePool, lasts: timedelta, at: datetime, note: str = ""
) -> tuple[JoinToken, str]:
    """The token and its secret, which is shown this once; for one machine."""
    if pool.provider != NodePool.Provider.STATIC:
        detail = f"The pool {pool.name} gets its machines from {pool.provider}: they join by themselves."
        raise Conflict(detail)
    _check(lasts, note)
    secret, digest = secrets.issue()
    with transaction.atomic():
        token = JoinToken.objects.create(
            pool=pool, digest=digest, prefix=secret[:SHOWN], note=note, issued_by=acting.name, issued_at=at,
            expires_at=at + lasts,
        )  # fmt: skip
        told = {"token": token.prefix, "expires_at": token.expires_at.isoformat(), "note": note}
        changed.send(NodePool, acting=acting, action="issue join token", obj=pool, before=None, after=told)
    return token, secret


def revoke_join_token(*, acting: Any, token: JoinToken, at: datetime) -> None:
    """Nobody joins by it from now on; who has joined by it stays. Done again it changes nothing."""
    with transaction.atomic():
        if token.used_at is not None:
            raise Conflict(f"A machine has joined by this token: remove the machine {token.used_by} instead.")
        live = JoinToken.objects.filter(pk=token.pk, used_at=None, revoked_at=None)
        if live.update(revoked_at=at):
            told = {"token": token.prefix, "note": token.note}
            changed.send(
                NodePool, acting=acting, action="revoke join token", obj=token.pool, before=told, after=None
            )


def forget_tokens(*, before: datetime) -> int:
    """Those that had run out by then; who joined with which stands in the pool's history."""
    return JoinToken.objects.filter(expires_at__lt=before).delete()[0]


def _check(lasts: timedelta, note: str) -> None:
    problems = []
    if not timedelta(0) < lasts <= LIFE_MAX:
        allowed = f"1 to {LIFE_MAX.total_seconds():.0f} s"
        problems.append(Problem("lasts_seconds", "is not allowed", f"{lasts.total_seconds():.0f}", allowed))
    if len(note) > 100 or not note.isprintable():
        problems.append(Problem("note", "is no note", shown(note), "at most 100 printable characters"))
    if problems:
        raise Invalid(problems)
