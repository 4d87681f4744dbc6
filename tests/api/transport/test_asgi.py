"""Tests for the request body limits that are enforced before Django."""

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core import signals

from berth.server.api.parsers import BODY_MAX
from berth.server.api.transport.asgi import RestRouter
from berth.server.front import bodies
from berth.server.front.bodies import BodyLimitMiddleware
from projects.api.people.authentication import may_send_large_bodies
from projects.models import Workload
from projects.services.people import tokens
from tests.api.transport.asgi_client import AsgiClient
from tests.cast import make_cast, training
from tests.support.session_cookies import session_cookie

CHUNK = b"x" * 65536
CALLS = "/api/v1/sessions/00000000-0000-0000-0000-000000000000/calls"


@pytest.fixture
def secret(transactional_db: None) -> str:
    cast = make_cast()
    return tokens.issue(actor=cast.dave, name="t", scopes=["read", "write"], expires_at=None)[1]


def submission(secret: str | None, path: str = "/api/v1/workloads", **fields: Any) -> AsgiClient:
    headers = {"content-type": "application/json", **fields.pop("headers", {})}
    return AsgiClient(path, secret=secret, method="POST", headers=headers, **fields)


def front() -> BodyLimitMiddleware:
    return BodyLimitMiddleware(RestRouter(page_app), may_send_large_bodies)


async def run_app(wire: AsgiClient, app: BodyLimitMiddleware | None = None) -> AsgiClient:
    wire.disconnected.set()
    await (app or front())(wire.scope, wire.receive, wire.send)
    return wire


async def page_app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 299, "headers": []})


async def test_excessive_content_length_is_rejected_before_the_body_is_read(secret: str) -> None:
    wire = submission(secret, headers={"content-length": str(BODY_MAX + 1)}, parts=(CHUNK,) * 200)
    await run_app(wire)
    assert wire.status == 413
    assert json.loads(wire.body)["code"] == "too-large"
    assert wire.sent[1]["body"], "the response is sent before the rest of the body is read"
    assert wire.left == [], "the rest of the body is read, so that the connection is not reset"


async def test_body_without_a_content_length_is_rejected_at_the_limit(secret: str) -> None:
    wire = await run_app(submission(secret, parts=(CHUNK,) * 200))
    assert (wire.status, wire.left) == (413, [])


async def test_body_size_of_page_requests_is_limited() -> None:
    wire = await run_app(AsgiClient("/login", method="POST", parts=(CHUNK,) * 200))
    assert wire.status == 413
    assert wire.body == b"The body exceeds 1048576 bytes, the maximum at this address. Send a smaller body."


@pytest.mark.heavy
async def test_body_in_several_asgi_messages_is_accepted(secret: str) -> None:
    text = json.dumps(training(project="vision")).encode()
    wire = submission(secret, headers={"content-length": str(len(text))}, parts=(text[:10], text[10:]))
    await front()(wire.scope, wire.receive, wire.send)
    assert wire.status == 201, wire.body
    assert await Workload.objects.acount() == 1


@pytest.mark.heavy
async def test_chunked_submission_is_accepted(secret: str) -> None:
    text = json.dumps(training(project="vision")).encode()
    wire = submission(secret, parts=(text[:10], text[10:]))
    await front()(wire.scope, wire.receive, wire.send)
    assert wire.status == 201, wire.body


async def test_large_body_requires_a_valid_token(secret: str) -> None:
    parts = (CHUNK,) * 40
    assert (await run_app(submission("berth_guessed", CALLS, parts=parts))).status == 401
    authorized = submission(secret, CALLS, headers={"content-type": "application/x"}, parts=parts)
    await front()(authorized.scope, authorized.receive, authorized.send)
    assert authorized.status == 404, authorized.body


@pytest.mark.heavy
async def test_large_body_is_accepted_from_a_live_browser_session(transactional_db: None) -> None:
    cookie = await sync_to_async(lambda: session_cookie(make_cast().dave.user))()
    parts, kind = (CHUNK,) * 40, {"content-type": "application/x"}
    guessed = submission(
        None, CALLS, headers=kind | {"cookie": f"{settings.SESSION_COOKIE_NAME}=guessed"}, parts=parts
    )
    assert (await run_app(guessed)).status == 401
    live = submission(None, CALLS, headers=kind | {"cookie": f"theme=dark; {cookie}"}, parts=parts)
    await front()(live.scope, live.receive, live.send)
    assert live.status == 403, live.body
    assert b"CSRF" in live.body, "the body is accepted, and the view rejects the request"


async def test_concurrent_large_bodies_per_token_are_limited(secret: str) -> None:
    app = front()
    for _ in range(bodies.LARGE_BODIES_MAX):
        await app.begin_large_body(bodies.RequestSender(secret))
    wire = await run_app(submission(secret, CALLS, parts=(CHUNK,) * 40), app)
    assert wire.status == 429
    assert (b"retry-after", b"1") in wire.sent[0]["headers"]
    app.end_large_body(bodies.RequestSender(secret))
    wire = submission(secret, CALLS, headers={"content-type": "application/x"}, parts=(CHUNK,) * 40)
    await app(wire.scope, wire.receive, wire.send)
    assert wire.status == 404


async def test_slow_body_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(bodies, "DRAIN_SECONDS", 0.05)
    wire = AsgiClient("/login", method="POST")
    wire.left = []  # no message ever arrives
    async with asyncio.timeout(30):
        await front()(wire.scope, wire.receive, wire.send)
    assert wire.status == 408


async def test_page_requests_are_passed_to_django() -> None:
    assert (await run_app(AsgiClient("/workloads"))).status == 299


async def test_request_finished_signal_is_sent_before_the_response() -> None:
    # Ending the request releases the database connection, which a slow client would otherwise keep.
    steps: list[str] = []
    wire = AsgiClient("/healthz")

    async def send(message: Any) -> None:
        steps.append(message["type"])

    def note(signal: Any, **more: Any) -> None:
        steps.append("started" if signal is signals.request_started else "finished")

    for signal in (signals.request_started, signals.request_finished):
        signal.connect(note)
    try:
        await RestRouter(page_app)(wire.scope, wire.receive, send)
    finally:
        for signal in (signals.request_started, signals.request_finished):
            signal.disconnect(note)
    assert steps == ["started", "finished", "http.response.start", "http.response.body"]
