"""Tests that open sockets and streams close soon after their session, token or role has ended.

All requests go through a real server, which does not recheck permissions at intervals.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from berth.server.asgi import berth
from berth.server.web.live.listener import LISTENER
from berth.server.wiring import Wiring
from pools.runtimes.base import PodSpec
from projects.actor import Actor
from projects.connections import streams
from projects.connections.sockets import INTERNAL_ERROR, SIGNED_OUT, TOO_MANY_CONNECTIONS
from projects.connections.watch import WATCHER
from projects.models import ApiToken, Membership, Pod
from projects.services import workloads
from projects.services.people import accounts, passwords, tokens
from scheduler.api.logs.live import NOT_FOUND
from tests import factories as make
from tests.cast import Cast, make_cast, training
from tests.fakes.runtime import FakeRuntime
from tests.harness.samples import sample
from tests.port_proxy.pod import served
from tests.support.session_cookies import session_cookie

DEADLINE_SECONDS = 180.0  # a check takes 2 s on an idle machine


class Site:
    def __init__(self, cast: Cast, pod: Pod, runtime: FakeRuntime, port: int) -> None:
        self.cast, self.pod, self.runtime, self.port = cast, pod, runtime, port

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def socket(self, kind: str, cookie: str) -> Iterator[ClientConnection]:
        """Yield an open socket that has received at least one message."""
        path = "/ws/live" if kind == "live" else f"/ws/workloads/{self.pod.workload_id}/log?pod={self.pod.pk}"
        with connect(
            f"ws://127.0.0.1:{self.port}{path}", additional_headers={"Cookie": cookie}, proxy=None,
            origin=Origin(self.address), open_timeout=DEADLINE_SECONDS,
        ) as connection:  # fmt: skip
            self.send_message(kind)
            connection.recv(DEADLINE_SECONDS)
            yield connection

    def send_message(self, kind: str = "log") -> None:
        if kind == "live":
            make.scaling(self.cast.pool, "ready", "answers", at=make.ago())
        else:
            self.runtime.write(str(self.pod.pk), b"line\n")


@pytest.fixture
def site(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    runtime = FakeRuntime()
    wiring = Wiring(runtime.clock, {}, {"fake": runtime})
    monkeypatch.setattr("scheduler.api.logs.pod_log.load_wiring", lambda: wiring)
    monkeypatch.setattr("projects.connections.watch.LINGER_SECONDS", 0.0)
    monkeypatch.setattr("projects.connections.watch.CHECK_SECONDS", 0.05)
    for module in ("sockets", "streams"):
        monkeypatch.setattr(f"projects.connections.{module}.RECHECK_SECONDS", 3600.0)
    cast = make_cast()
    work = make.workload(
        cast.vision, "train", by=cast.dave.user, phase="running", run=1, started_at=make.ago(hours=1)
    )
    pod = make.place(work, make.node(cast.pool), [0])
    runtime.start(PodSpec(str(pod.pk), pod.name, "w", ("true",), {}, None, "i-0", (), 5))
    with served(berth) as port:
        yield Site(cast, pod, runtime, port)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while WATCHER._thread is not None and time.monotonic() < deadline:
        time.sleep(0.01)


def close_code(connection: ClientConnection) -> int:
    """Return the socket's close code. Earlier messages are ignored."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        while True:
            connection.recv(max(0.0, deadline - time.monotonic()))
    except ConnectionClosed as closed:
        assert closed.rcvd is not None
        return closed.rcvd.code


def sign_out(cookie: str, user: User) -> None:
    browser = Client()
    browser.cookies.load(cookie)
    assert browser.post("/logout").status_code == 302


def delete_session(cookie: str, user: User) -> None:
    Session.objects.filter(session_key=cookie.partition("=")[2]).delete()


def expire_session(cookie: str, user: User) -> None:
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))


def deactivate(cookie: str, user: User) -> None:
    accounts.deactivate(actor=Actor.system("test"), user=user)


def change_password(cookie: str, user: User) -> None:
    passwords.change(actor=Actor.for_user(user), current="correct horse battery", new="another horse battery")


@pytest.mark.every_case
@pytest.mark.parametrize(
    "end", sample([sign_out, delete_session, expire_session, deactivate, change_password], 2),
    ids=lambda end: end.__name__,
)  # fmt: skip
@pytest.mark.parametrize("kind", ["live", "log"])
def test_websocket_closes_when_the_session_ends(
    site: Site, kind: str, end: Callable[[str, User], None]
) -> None:
    user = site.cast.dave.user
    cookie = session_cookie(user)
    with (
        site.socket(kind, cookie) as connection,
        site.socket(kind, session_cookie(site.cast.carol.user)) as other,
    ):
        end(cookie, user)
        assert close_code(connection) == SIGNED_OUT
        if end is not expire_session:  # expire_session ends every session
            site.send_message(kind)
            assert other.recv(DEADLINE_SECONDS), "another user's socket stays open"


def test_log_stream_closes_when_the_users_role_is_removed(site: Site) -> None:
    with site.socket("log", session_cookie(site.cast.dave.user)) as connection:
        Membership.objects.filter(user=site.cast.dave.user).delete()
        assert close_code(connection) == NOT_FOUND


def test_live_updates_omit_a_project_after_the_users_role_is_removed(site: Site) -> None:
    # The test deletes the row directly, so that the change is not announced.
    with site.socket("live", session_cookie(site.cast.dave.user)) as connection:
        Membership.objects.filter(user=site.cast.dave.user).delete()
        heard_last = time.monotonic()
        deadline = heard_last + DEADLINE_SECONDS
        while True:  # repeat until a submission is no longer announced
            work = workloads.submit(
                actor=site.cast.carol, project=site.cast.vision, document=training(f"w{time.time_ns()}")
            )
            if not is_announced(connection, str(work.pk)):
                return
            assert time.monotonic() < deadline


def is_announced(connection: ClientConnection, ident: str) -> bool:
    try:
        while True:
            message = json.loads(connection.recv(1.0))
            if ident in (message["ids"] or ()):
                return True
    except TimeoutError:
        return False


def revoke(token: ApiToken, cast: Cast) -> None:
    tokens.revoke(actor=cast.dave, token=token)


def expire(token: ApiToken, cast: Cast) -> None:
    ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() - timedelta(seconds=1))


def remove_role(token: ApiToken, cast: Cast) -> None:
    Membership.objects.filter(user=cast.dave.user).delete()


@pytest.mark.parametrize("end", sample([revoke, expire, remove_role], 1), ids=lambda end: end.__name__)
def test_followed_log_ends_when_the_token_expires_or_the_role_is_removed(site: Site, end: Any) -> None:
    token, secret = tokens.issue(actor=site.cast.dave, name="t", scopes=["read"], expires_at=None)
    url = f"{site.address}/api/v1/workloads/{site.pod.workload_id}/logs?follow=true"
    headers = {"Authorization": f"Bearer {secret}"}
    with httpx.stream("GET", url, headers=headers, timeout=DEADLINE_SECONDS, trust_env=False) as answer:
        assert answer.status_code == 200
        parts = answer.iter_raw()
        site.send_message()
        assert b"line" in next(parts)
        end(token, site.cast)
        with pytest.raises(httpx.RemoteProtocolError):
            list(parts)


def test_followed_log_ends_when_the_user_signs_out(site: Site) -> None:
    user = site.cast.dave.user
    cookie = session_cookie(user)
    url = f"{site.address}/api/v1/workloads/{site.pod.workload_id}/logs?follow=true"
    with httpx.stream(
        "GET", url, headers={"Cookie": cookie}, timeout=DEADLINE_SECONDS, trust_env=False
    ) as answer:
        parts = answer.iter_raw()
        site.send_message()
        assert b"line" in next(parts)
        sign_out(cookie, user)
        with pytest.raises(httpx.RemoteProtocolError):
            list(parts)


def test_followed_log_continues_when_a_role_is_added(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[bool] = []

    def is_allowed(credential: Any, roles: Any) -> bool:
        checks.append(check(credential, roles))
        return checks[-1]

    def wait_for_checks(times: int) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(checks) < times:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    check = streams._is_allowed
    monkeypatch.setattr(streams, "_is_allowed", is_allowed)
    _, secret = tokens.issue(actor=site.cast.dave, name="t", scopes=["read"], expires_at=None)
    url = f"{site.address}/api/v1/workloads/{site.pod.workload_id}/logs?follow=true"
    headers = {"Authorization": f"Bearer {secret}"}
    with httpx.stream("GET", url, headers=headers, timeout=DEADLINE_SECONDS, trust_env=False) as answer:
        parts = answer.iter_raw()
        site.send_message()
        assert b"line" in next(parts)
        wait_for_checks(1)
        Membership.objects.create(user=site.cast.dave.user, role="viewer", project=site.cast.ads)
        wait_for_checks(2)
        for _ in range(3):
            site.send_message()
        site.runtime.end(str(site.pod.pk), exit_code=0)
        assert b"".join(parts).count(b"line\n") == 3


def test_websocket_that_fails_to_open_is_not_counted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # This happens when a browser leaves the page immediately.
    user = site.cast.dave.user

    async def fail_to_accept(*_: object, **__: object) -> None:
        raise OSError("the client has disconnected")

    with monkeypatch.context() as patched:
        patched.setattr("projects.connections.sockets.SignedInConsumer.accept", fail_to_accept)
        with pytest.raises(InvalidStatus), site.socket("live", session_cookie(user)):
            pass
    assert WATCHER.count(user.pk) == 0
    assert not LISTENER._queues


def test_websocket_closes_when_permissions_cannot_be_checked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no answer")

    cookie = session_cookie(site.cast.dave.user)
    with site.socket("log", cookie) as connection:
        monkeypatch.setattr("projects.connections.sockets.load_active_user", broken)
        monkeypatch.setattr("scheduler.api.logs.live.find_pod_log", broken)  # a check may be in progress
        Membership.objects.filter(user=site.cast.dave.user).delete()
        assert close_code(connection) == INTERNAL_ERROR


def test_permission_checks_of_websockets_resume_after_an_error(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()

    def broken(_: object) -> None:
        looked.set()
        raise ValueError("no answer")

    cookie = session_cookie(site.cast.dave.user)
    with site.socket("log", cookie) as connection:
        with monkeypatch.context() as patched:
            patched.setattr("projects.connections.watch.load_states", broken)
            assert looked.wait(DEADLINE_SECONDS)
        Membership.objects.filter(user=site.cast.dave.user).delete()
        assert close_code(connection) == NOT_FOUND


def test_connections_per_user_are_limited(site: Site, settings: Any) -> None:
    settings.BERTH_CONNECTIONS_PER_USER = 2
    cookie = session_cookie(site.cast.dave.user)
    with site.socket("live", cookie), site.socket("log", cookie):
        with connect(
            f"ws://127.0.0.1:{site.port}/ws/live", additional_headers={"Cookie": cookie}, proxy=None,
            origin=Origin(site.address), open_timeout=DEADLINE_SECONDS,
        ) as third:  # fmt: skip
            assert close_code(third) == TOO_MANY_CONNECTIONS
        url = f"{site.address}/api/v1/workloads/{site.pod.workload_id}/logs?follow=true"
        rejected = httpx.get(url, headers={"Cookie": cookie}, timeout=DEADLINE_SECONDS, trust_env=False)
        assert (rejected.status_code, rejected.json()["code"]) == (429, "rate-limited")
        with site.socket("live", session_cookie(site.cast.carol.user)):
            pass  # another user is not affected
