"""Idempotency keys: a request that is sent twice with the same Idempotency-Key runs once.

The key's row and the change itself are written in one transaction. A second request with the same key waits
at the unique index until the first request has finished, and then receives the stored response. If the first
request failed, and therefore changed nothing, the second request runs.

Some handlers make the change and store the response with a single statement. No row is written for their keys
beforehand. A second request with the same key fails at the unique index, and then receives the stored
response.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from django.db import IntegrityError, transaction
from django.http import HttpResponse
from django.utils import timezone
from django.utils.crypto import salted_hmac
from psycopg.errors import UniqueViolation
from pydantic import BaseModel
from pydantic_core import to_json
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, format_value
from berth.db.queries import prepared
from berth.db.writes.stored_responses import UNIQUE_KEY, ResponseRow
from berth.server.api.models import StoredResponse

if TYPE_CHECKING:
    from berth.server.api.views import ApiView

HEADER = "Idempotency-Key"
RETENTION = timedelta(hours=24)
KEY_MAX = 255
SWEEP_EVERY = 200  # number of new rows after which expired responses are deleted
# Fields that are returned only once and are null in replayed responses.
SECRETS = ("token", "secrets")
CLAIM = """
    INSERT INTO berth_api_storedresponse AS stored
        (user_id, key, fingerprint, status, headers, body, created_at)
    VALUES (%s, %s, %s, NULL, '{}', '', %s)
    ON CONFLICT (user_id, key) DO UPDATE
        SET fingerprint = EXCLUDED.fingerprint, status = NULL, headers = '{}', body = '',
            created_at = EXCLUDED.created_at
        WHERE stored.created_at < %s
    RETURNING id
"""
FIND = """
    SELECT fingerprint, status, headers::text, body, created_at
    FROM berth_api_storedresponse WHERE user_id = %s AND key = %s
"""
COMPLETE = "UPDATE berth_api_storedresponse SET status = %s, headers = %s, body = %s WHERE id = %s"

_new_responses = count(1)

V = TypeVar("V", bound="ApiView")
P = ParamSpec("P")
Handler = Callable[Concatenate[V, Request, P], Response]
AnyHandler = Callable[Concatenate[V, Request, P], HttpResponse]


@dataclass(frozen=True, slots=True)
class UsedKey:
    """Idempotency key of a user's request."""

    user_id: int
    key: str
    fingerprint: str

    def row(self, response: Response) -> ResponseRow:
        """Return the row that stores the response.

        The statement that makes the change also inserts this row.
        """
        headers, body = _parts_to_store(response)
        return ResponseRow(
            self.user_id, self.key, self.fingerprint, response.status_code, headers, body, timezone.now()
        )


def idempotent(handler: Handler[V, P]) -> AnyHandler[V, P]:
    """Decorator that supports the Idempotency-Key header. Every POST has this decorator or `repeatable`."""

    @wraps(handler)
    def wrapper(view: V, request: Request, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        key = request.headers.get(HEADER)
        if key is None or not request.user.is_authenticated or view.is_slow_dry_run(request):
            return handler(view, request, *args, **kwargs)
        used = UsedKey(request.user.pk, key, _fingerprint(request, _validate_key(key)))
        if view.stores_response(request):
            return _run_or_replay(view, used, lambda: handler(view, request, *args, **kwargs))
        with transaction.atomic():
            claim = _claim_key(used)
            if claim is None:
                return _replay(used)
            response = handler(view, request, *args, **kwargs)
            _store_response(claim, response)
        return response

    cast("Any", wrapper).is_idempotent = True
    return wrapper


def repeatable(handler: AnyHandler[V, P]) -> AnyHandler[V, P]:
    """Mark a POST that is safe to repeat. Its response is not stored, for example because it contains a
    secret.
    """
    cast("Any", handler).is_repeatable = True
    return handler


def _validate_key(key: str) -> str:
    if not key or len(key) > KEY_MAX or not key.isascii() or not key.isprintable():
        allowed = f"1 to {KEY_MAX} printable ASCII characters"
        raise Invalid([Problem(HEADER, "is not a valid key", format_value(key), allowed)])
    return key


def _fingerprint(request: Request, key: str) -> str:
    """Hash the request with the installation's secret key, because the request may contain a password."""
    content = f"{request.method} {request.get_full_path()} {request.content_type}\n".encode() + request.body
    return salted_hmac("berth.idempotency", key.encode() + b"\n" + content, algorithm="sha256").hexdigest()


def _run_or_replay(view: "ApiView", used: UsedKey, handle: Callable[[], Response]) -> HttpResponse:
    """Run a handler that stores its own response.

    If a response is already stored, return that response instead.
    """
    stored = _load_unexpired_response(used)
    if stored is not None:
        return stored
    view.used_key = used
    try:
        response = handle()
    except (IntegrityError, Conflict) as error:
        # A concurrent request with the same key may have created the object and stored its response.
        if isinstance(error, IntegrityError) and not _is_key_violation(error):
            raise
        stored = _load_unexpired_response(used)
        if stored is None:
            raise
        return stored
    if next(_new_responses) % SWEEP_EVERY == 0:
        delete_expired_responses()
    return response


def _is_key_violation(error: IntegrityError) -> bool:
    cause = error.__cause__
    return isinstance(cause, UniqueViolation) and cause.diag.constraint_name == UNIQUE_KEY


def _load_unexpired_response(used: UsedKey) -> HttpResponse | None:
    """Return the stored response, or None. An expired response is deleted."""
    row = prepared.fetch_one(FIND, [used.user_id, used.key])
    if row is None:
        return None
    fingerprint, status, headers, body, created_at = row
    if created_at < timezone.now() - RETENTION:
        expired = StoredResponse.objects.filter(user_id=used.user_id, key=used.key, created_at=created_at)
        expired.delete()
        return None
    return _to_response(used, fingerprint, status, json.loads(headers), body)


def _claim_key(used: UsedKey) -> int | None:
    now = timezone.now()
    parameters = [used.user_id, used.key, used.fingerprint, now, now - RETENTION]
    row = prepared.fetch_one(CLAIM, parameters)
    if row is not None and row[0] % SWEEP_EVERY == 0:
        delete_expired_responses()
    return None if row is None else row[0]


def delete_expired_responses() -> int:
    """Delete up to 1000 expired rows that no other request has locked. Return the number of deleted rows."""
    expired = StoredResponse.objects.filter(created_at__lt=timezone.now() - RETENTION)
    unlocked = expired.select_for_update(skip_locked=True).order_by("id").values_list("id", flat=True)[:1000]
    with transaction.atomic():
        return StoredResponse.objects.filter(pk__in=list(unlocked)).delete()[0]


def _store_response(claim: int, response: Response) -> None:
    if response.status_code >= 300:
        transaction.set_rollback(True)
        return
    headers, body = _parts_to_store(response)
    prepared.execute(COMPLETE, [response.status_code, to_json(headers).decode(), body, claim])


def _parts_to_store(response: Response) -> tuple[dict[str, str], bytes]:
    """Return the headers and body to replay, without secrets."""
    data = response.data
    if isinstance(data, BaseModel):
        data = data.model_dump(mode="json")
    if isinstance(data, dict):
        data = {name: None if name in SECRETS else value for name, value in data.items()}
    headers = {name: response.headers[name] for name in ("Location", "ETag") if name in response.headers}
    return headers, b"" if data is None else to_json(data, inf_nan_mode="null")


def _replay(used: UsedKey) -> HttpResponse:
    stored = StoredResponse.objects.get(user_id=used.user_id, key=used.key)
    return _to_response(used, stored.fingerprint, stored.status, stored.headers, bytes(stored.body))


def _to_response(
    used: UsedKey, fingerprint: str, status: int | None, headers: dict[str, str], body: bytes
) -> HttpResponse:
    if fingerprint != used.fingerprint:
        allowed = "a new key, or the same request as before"
        raise Invalid([Problem(HEADER, "was used for another request", format_value(used.key), allowed)])
    headers = {**headers, "Idempotency-Replayed": "true"}
    return HttpResponse(bytes(body), "application/json", status, headers=headers)
