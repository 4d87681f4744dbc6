"""Execute a request that is sent twice with one Idempotency-Key only once.

The key's row and the change itself are one transaction: a second request with the key waits at the unique
index until the first is through, then is given the first one's answer, or, where the first was refused and
so changed nothing, is tried in earnest.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from django.db import connection, transaction
from django.http import HttpResponse
from django.utils import timezone
from django.utils.crypto import salted_hmac
from pydantic import BaseModel
from pydantic_core import to_json
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.core.problems import Problem, shown
from berth.server.api.models import KeptAnswer

if TYPE_CHECKING:
    from berth.server.api.door import Door

HEADER = "Idempotency-Key"
KEPT_FOR = timedelta(hours=24)
KEY_MAX = 255
SWEEP_EVERY = 200  # rows between two looks for answers that are too old
SECRETS = ("token", "secrets")  # shown once: a repeated answer carries null instead
CLAIM = """
    INSERT INTO berth_api_keptanswer AS kept (user_id, key, fingerprint, status, headers, body, created_at)
    VALUES (%s, %s, %s, NULL, '{}', '', %s)
    ON CONFLICT (user_id, key) DO UPDATE
        SET fingerprint = EXCLUDED.fingerprint, status = NULL, headers = '{}', body = '',
            created_at = EXCLUDED.created_at
        WHERE kept.created_at < %s
    RETURNING id
"""

D = TypeVar("D", bound="Door")
P = ParamSpec("P")
Handler = Callable[Concatenate[D, Request, P], Response]
Answered = Callable[Concatenate[D, Request, P], HttpResponse]


def once(handler: Handler[D, P]) -> Answered[D, P]:
    """Every POST of the API wears this, or `anew`."""

    @wraps(handler)
    def wrapped(door: D, request: Request, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        key = request.headers.get(HEADER)
        if key is None or not request.user.is_authenticated:
            return handler(door, request, *args, **kwargs)
        fingerprint = _fingerprint(request, _checked(key))
        with transaction.atomic():
            claim = _claim(request.user.pk, key, fingerprint)
            if claim is None:
                return _repeated(request.user.pk, key, fingerprint)
            response = handler(door, request, *args, **kwargs)
            _keep(claim, response)
        return response

    wrapped.answers_once = True  # type: ignore[attr-defined]
    return wrapped


def anew(handler: Answered[D, P]) -> Answered[D, P]:
    """For a POST that may be done twice without harm, and whose answer is a secret that is kept nowhere:
    whoever did not get it is given another."""
    handler.answers_anew = True  # type: ignore[attr-defined]
    return handler


def _checked(key: str) -> str:
    if not key or len(key) > KEY_MAX or not key.isascii() or not key.isprintable():
        allowed = f"1 to {KEY_MAX} printable ASCII characters"
        raise Invalid([Problem(HEADER, "is not a key", shown(key), allowed)])
    return key


def _fingerprint(request: Request, key: str) -> str:
    """Keyed with the installation's secret: a body may hold a password."""
    seen = f"{request.method} {request.get_full_path()} {request.content_type}\n".encode() + request.body
    return salted_hmac("berth.idempotency", key.encode() + b"\n" + seen, algorithm="sha256").hexdigest()


def _claim(user_id: int, key: str, fingerprint: str) -> int | None:
    now = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(CLAIM, [user_id, key, fingerprint, now, now - KEPT_FOR])
        row = cursor.fetchone()
    if row is not None and row[0] % SWEEP_EVERY == 0:
        forget_old_answers()
    return None if row is None else row[0]


def forget_old_answers() -> int:
    """Rows locked by somebody else's request are left for the next time."""
    old = KeptAnswer.objects.filter(created_at__lt=timezone.now() - KEPT_FOR)
    free = old.select_for_update(skip_locked=True).order_by("id").values_list("id", flat=True)[:1000]
    with transaction.atomic():
        return KeptAnswer.objects.filter(pk__in=list(free)).delete()[0]


def _keep(claim: int, response: Response) -> None:
    if response.status_code >= 300:
        transaction.set_rollback(True)
        return
    data = response.data
    if isinstance(data, BaseModel):
        data = data.model_dump(mode="json")
    if isinstance(data, dict):
        data = {name: None if name in SECRETS else value for name, value in data.items()}
    headers = {name: response.headers[name] for name in ("Location", "ETag") if name in response.headers}
    body = b"" if data is None else to_json(data, inf_nan_mode="null")
    KeptAnswer.objects.filter(pk=claim).update(status=response.status_code, headers=headers, body=body)


def _repeated(user_id: int, key: str, fingerprint: str) -> HttpResponse:
    kept = KeptAnswer.objects.get(user_id=user_id, key=key)
    if kept.fingerprint != fingerprint:
        allowed = "a new key, or exactly the request it was first sent with"
        raise Invalid([Problem(HEADER, "was used for another request", shown(key), allowed)])
    headers = {**kept.headers, "Idempotency-Replayed": "true"}
    return HttpResponse(bytes(kept.body), "application/json", kept.status, headers=headers)
