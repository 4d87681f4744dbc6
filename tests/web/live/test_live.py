"""Tests that live updates send only kinds and IDs, and only to users with access to the objects."""

import json
import time
import uuid
from collections.abc import Callable
from typing import Any, Self

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.routing import URLRouter
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection, transaction

from berth.server.asgi import websocket_urlpatterns
from berth.server.web.live.announcer import IDS_MAX, Announcer, build_change_events
from berth.server.web.live.listener import CLOCK_SKEW_SECONDS
from projects.connections.sockets import SIGNED_OUT
from projects.models import Membership
from projects.services import workloads
from projects.services.people import members
from scheduler.api.live import Visibility, load_visibility
from tests import factories as make
from tests.cast import Cast, make_cast, training
from tests.support.session_cookies import session_cookie

PATIENCE = 120.0
application = URLRouter(websocket_urlpatterns)


@pytest.fixture
def committed_cast(transactional_db: None) -> Cast:
    return make_cast()


class LiveSocket(ApplicationCommunicator):
    """The browser side of a WebSocket."""

    def __init__(self, user: User | AnonymousUser, since: str = "") -> None:
        self.user = user
        self.scope: dict[str, Any] = {
            "type": "websocket", "path": "/ws/live", "headers": [],
            "query_string": f"since={since}".encode(),
        }  # fmt: skip
        super().__init__(application, self.scope)

    async def __aenter__(self) -> Self:
        cookie = await sync_to_async(session_cookie)(self.user)
        self.scope["headers"].append((b"cookie", cookie.encode()))
        await self.send_input({"type": "websocket.connect"})
        assert (await self.receive_output(PATIENCE))["type"] == "websocket.accept"
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(PATIENCE)

    async def receive(self) -> dict[str, Any]:
        answer = await self.receive_output(PATIENCE)
        return json.loads(answer["text"])

    async def receives(self, ident: object) -> bool:
        """Wait for a message that names the ID and return True. All other messages are skipped."""
        try:
            while True:
                message = await self.receive()
                assert set(message) == {"kind", "ids"}
                if message["ids"] and str(ident) in message["ids"]:
                    return True
        except TimeoutError:
            return False

    async def ids_until(self, ident: object) -> set[str]:
        """Return the IDs in all messages up to the first message that names this ID."""
        received: set[str] = set()
        while str(ident) not in received:
            received |= set((await self.receive())["ids"])
        return received


async def test_workload_updates_reach_only_project_members(committed_cast: Cast) -> None:
    async with (
        LiveSocket(committed_cast.dave.user) as dave,
        LiveSocket(committed_cast.grace.user) as grace,
        LiveSocket(committed_cast.bob.user) as bob,
    ):
        ours = await sync_to_async(workloads.submit)(
            actor=committed_cast.dave, project=committed_cast.vision, document=training()
        )
        assert await dave.receives(ours.pk)
        assert await bob.receives(ours.pk), "the department's admin sees all of its projects"
        theirs = await sync_to_async(workloads.submit)(
            actor=committed_cast.grace, project=committed_cast.ads, document=training("b")
        )
        assert await grace.ids_until(theirs.pk) == {str(theirs.pk)}
        last = await sync_to_async(workloads.submit)(
            actor=committed_cast.dave, project=committed_cast.vision, document=training("c")
        )
        assert await dave.ids_until(last.pk) <= {str(ours.pk), str(last.pk)}


async def test_anonymous_websocket_is_closed(committed_cast: Cast) -> None:
    # The server accepts the socket first, because a browser reads close codes only from open sockets.
    async with LiveSocket(AnonymousUser()) as stranger:
        closing = await stranger.receive_output(PATIENCE)
        assert (closing["type"], closing["code"]) == ("websocket.close", SIGNED_OUT)


async def test_revoked_role_stops_updates(committed_cast: Cast) -> None:
    async with LiveSocket(committed_cast.dave.user) as dave:
        row = await Membership.objects.select_related("user", "project__department", "department").aget(
            user=committed_cast.dave.user
        )
        await sync_to_async(members.revoke)(actor=committed_cast.alice, membership=row)
        assert (await dave.receive())["kind"] == "tenants"
        await sync_to_async(workloads.submit)(
            actor=committed_cast.carol, project=committed_cast.vision, document=training()
        )
        assert await dave.receive_nothing(timeout=0.5)


async def test_newly_granted_role_starts_updates_immediately(committed_cast: Cast) -> None:
    async with LiveSocket(committed_cast.frank.user) as frank:
        await sync_to_async(members.grant)(
            actor=committed_cast.alice,
            user=committed_cast.frank.user,
            role="viewer",
            scope=committed_cast.vision,
        )
        assert (await frank.receive())["kind"] == "tenants"
        made = await sync_to_async(workloads.submit)(
            actor=committed_cast.carol, project=committed_cast.vision, document=training()
        )
        assert await frank.receives(made.pk)


async def test_deactivated_user_is_signed_out(committed_cast: Cast) -> None:
    async with LiveSocket(committed_cast.dave.user) as dave:
        await User.objects.filter(pk=committed_cast.dave.user.pk).aupdate(is_active=False)
        assert (await dave.receive_output(PATIENCE))["code"] == SIGNED_OUT


async def test_changes_between_page_load_and_websocket_connection_are_sent(committed_cast: Cast) -> None:
    async with LiveSocket(committed_cast.dave.user) as first:
        written = f"{time.time() + CLOCK_SKEW_SECONDS:.3f}"
        made = await sync_to_async(workloads.submit)(
            actor=committed_cast.dave, project=committed_cast.vision, document=training()
        )
        assert await first.receives(made.pk)
        async with (
            LiveSocket(committed_cast.dave.user, written) as late,
            LiveSocket(committed_cast.grace.user, written) as other,
        ):
            assert await late.receives(made.pk)
            assert await other.receive_nothing(timeout=0.2)


async def test_page_loaded_before_the_listener_started_is_fully_refreshed(committed_cast: Cast) -> None:
    async with LiveSocket(committed_cast.dave.user, since="1.5") as dave:
        assert await dave.receive() == {"kind": "everything", "ids": None}


@pytest.mark.parametrize("since", ["", "nan", "-1", "1e400", "yesterday", "9" * 400])
async def test_invalid_since_parameter_is_ignored(committed_cast: Cast, since: str) -> None:
    async with LiveSocket(committed_cast.dave.user, since=since) as dave:
        assert await dave.receive_nothing(timeout=0.05)


async def test_pool_updates_reach_only_users_with_a_role(committed_cast: Cast) -> None:
    async with LiveSocket(committed_cast.erin.user) as erin, LiveSocket(committed_cast.frank.user) as frank:
        await sync_to_async(make.scaling)(committed_cast.pool, "ready", "answers", at=make.ago())
        assert await erin.receive() == {"kind": "pools", "ids": None}
        await sync_to_async(members.grant)(
            actor=committed_cast.alice,
            user=committed_cast.frank.user,
            role="viewer",
            scope=committed_cast.vision,
        )
        assert (await frank.receive())["kind"] == "tenants", "no pool update was sent before"
        await sync_to_async(make.scaling)(committed_cast.pool, "ready", "again", at=make.ago())
        assert await frank.receive() == {"kind": "pools", "ids": None}


async def test_websocket_messages_from_the_browser_are_ignored(committed_cast: Cast) -> None:
    async with LiveSocket(committed_cast.dave.user) as dave:
        await dave.send_input({"type": "websocket.receive", "text": "not even JSON"})
        await dave.send_input({"type": "websocket.receive", "bytes": b"\x00"})
        made = await sync_to_async(workloads.submit)(
            actor=committed_cast.dave, project=committed_cast.vision, document=training()
        )
        assert await dave.receives(made.pk)


async def test_rolled_back_change_is_not_sent(committed_cast: Cast) -> None:
    def submit_and_roll_back() -> None:
        with pytest.raises(RuntimeError), transaction.atomic():
            workloads.submit(
                actor=committed_cast.dave, project=committed_cast.vision, document=training("undone")
            )
            raise RuntimeError

    async with LiveSocket(committed_cast.dave.user) as dave:
        await sync_to_async(submit_and_roll_back)()
        assert await dave.receive_nothing(timeout=0.3)


def test_burst_of_changes_causes_only_one_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    # A time that is longer than the test.
    monkeypatch.setattr("berth.server.web.live.announcer.GATHER_SECONDS", 3600.0)
    sent: list[int] = []
    announcer = Announcer()
    announcer.send = lambda: sent.append(len(announcer._pending))  # type: ignore[method-assign]
    announcer._sent_at = time.monotonic()
    for _ in range(5000):
        announcer.announce("workload", project=1, department=1, object_ids=[str(uuid.uuid4())])
    gathered = list(build_change_events(announcer._pending))
    announcer.shut_down()
    assert sent == []
    assert gathered == [{"kind": "workload", "project": 1, "department": 1, "ids": None}]


@pytest.fixture
def announcements(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Record the announcements of threads, each with the process of its database connection.

    Each announcement seems to follow immediately on the previous one.
    """
    module = "berth.server.web.live.announcer"
    monkeypatch.setattr(f"{module}.time.monotonic", lambda: 100.0)
    monkeypatch.setattr(f"{module}.GATHER_SECONDS", 0.01)
    sent: list[tuple[str, int]] = []

    def record(name: str, notes: list[str]) -> None:
        connection.ensure_connection()
        sent.append((json.loads(notes[0])["ids"][0], connection.connection.info.backend_pid))

    monkeypatch.setattr(f"{module}.wake_with_reasons", record)
    return sent


def announce_and_wait(announcer: Announcer, name: str, sent: list[tuple[str, int]]) -> int:
    """Announce a change, wait until a thread has sent it, and return the process of its connection."""
    announcer._sent_at = 100.0
    announcer.announce("workload", object_ids=[name])
    await_true(lambda: bool(sent) and sent[-1][0] == name)
    return sent[-1][1]


def await_true(condition: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + PATIENCE
    while not condition():
        assert time.perf_counter() < deadline
        time.sleep(0.005)


def is_connected(process: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", [process])
        return bool(cursor.fetchone()[0])


def test_consecutive_announcements_share_a_connection(announcements: list[tuple[str, int]]) -> None:
    announcer = Announcer()
    processes = {announce_and_wait(announcer, name, announcements) for name in ("a", "b", "c")}
    assert len(processes) == 1
    announcer.shut_down()
    await_true(lambda: not is_connected(*processes))


def test_idle_announcement_connection_is_closed(
    announcements: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.server.web.live.announcer.IDLE_SECONDS", 0.01)
    announcer = Announcer()
    for name in ("a", "b"):
        process = announce_and_wait(announcer, name, announcements)
        await_true(lambda process=process: not is_connected(process))  # type: ignore[misc]
    announcer.shut_down()


def test_change_notification_fits_into_a_postgres_notification() -> None:
    ids = {str(uuid.uuid4()) for _ in range(IDS_MAX)}
    (event,) = build_change_events({("workload", (10**12, 10**12)): ids})
    assert len(str(event)) < 8000
    assert set(event["ids"]) == ids


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("name", "sees"), [("alice", True), ("bob", True), ("dave", True), ("grace", False), ("frank", False)]
)
def test_live_updates_depend_on_the_users_role(name: str, sees: bool, cast: Cast) -> None:
    note = {"kind": "workload", "project": cast.vision.pk, "department": cast.research.pk, "ids": None}
    assert load_visibility(cast.people[name]).includes(note) is sees


def test_department_updates_are_limited_to_visible_projects() -> None:
    visibility = Visibility(False, frozenset(), frozenset({7}), capacity=True)
    assert visibility.includes({"kind": "workload", "project": 7, "department": 1, "ids": None})
    assert not visibility.includes({"kind": "workload", "project": 8, "department": 1, "ids": None})
