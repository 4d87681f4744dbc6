"""Claims about live updates: who hears of what, and that only kinds and ids are told."""

import json
import time
import uuid
from typing import Any, Self

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.routing import URLRouter
from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction

from berth.server.asgi import websocket_urlpatterns
from berth.server.web.live.announcer import MOST_IDS, Announcer, notes
from berth.server.web.live.listener import CLOCKS_APART_SECONDS
from projects.connections.sockets import SIGNED_OUT
from projects.models import Membership
from projects.services import workloads
from projects.services.people import members
from scheduler.api.live import Sight, sight_of
from tests import factories as make
from tests.cast import Cast, make_cast, training
from tests.sessions_of_people import cookie_of

PATIENCE = 30.0
application = URLRouter(websocket_urlpatterns)


@pytest.fixture
def seen(transactional_db: None) -> Cast:
    return make_cast()


class Talk(ApplicationCommunicator):
    """One WebSocket, from the browser's side."""

    def __init__(self, user: User | AnonymousUser, since: str = "") -> None:
        self.user = user
        self.scope: dict[str, Any] = {
            "type": "websocket", "path": "/ws/live", "headers": [],
            "query_string": f"since={since}".encode(),
        }  # fmt: skip
        super().__init__(application, self.scope)

    async def __aenter__(self) -> Self:
        cookie = await sync_to_async(cookie_of)(self.user)
        self.scope["headers"].append((b"cookie", cookie.encode()))
        await self.send_input({"type": "websocket.connect"})
        assert (await self.receive_output(PATIENCE))["type"] == "websocket.accept"
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(PATIENCE)

    async def message(self) -> dict[str, Any]:
        answer = await self.receive_output(PATIENCE)
        return json.loads(answer["text"])

    async def hears(self, ident: object) -> bool:
        """Whether this id is told of; what is told besides is passed over."""
        try:
            while True:
                message = await self.message()
                assert set(message) == {"kind", "ids"}
                if message["ids"] and str(ident) in message["ids"]:
                    return True
        except TimeoutError:
            return False


@pytest.fixture
def reader() -> type[Talk]:
    return Talk


async def test_members_of_the_project_hear_of_its_workloads_and_others_do_not(seen: Cast, reader) -> None:
    async with reader(seen.dave.user) as dave, reader(seen.grace.user) as grace, reader(seen.bob.user) as bob:
        ours = await sync_to_async(workloads.submit)(
            acting=seen.dave, project=seen.vision, document=training()
        )
        assert await dave.hears(ours.pk)
        assert await bob.hears(ours.pk), "the department's admin sees all of its projects"
        theirs = await sync_to_async(workloads.submit)(
            acting=seen.grace, project=seen.ads, document=training("b")
        )
        message = await grace.message()
        assert message == {"kind": "workload", "ids": [str(theirs.pk)]}, "ours was not told to grace"
        assert await dave.receive_nothing(timeout=0.2)


async def test_strangers_are_turned_away(seen: Cast, reader) -> None:
    """The code of a refusal reaches a browser only on an open socket."""
    async with reader(AnonymousUser()) as stranger:
        closing = await stranger.receive_output(PATIENCE)
        assert (closing["type"], closing["code"]) == ("websocket.close", SIGNED_OUT)


async def test_a_role_that_is_taken_silences_the_page(seen: Cast, reader) -> None:
    async with reader(seen.dave.user) as dave:
        row = await Membership.objects.select_related("user", "project__department", "department").aget(
            user=seen.dave.user
        )
        await sync_to_async(members.revoke)(acting=seen.alice, membership=row)
        assert (await dave.message())["kind"] == "tenants"
        await sync_to_async(workloads.submit)(acting=seen.carol, project=seen.vision, document=training())
        assert await dave.receive_nothing(timeout=0.5)


async def test_a_role_that_is_granted_is_heard_at_once(seen: Cast, reader) -> None:
    async with reader(seen.frank.user) as frank:
        await sync_to_async(members.grant)(
            acting=seen.alice, user=seen.frank.user, role="viewer", scope=seen.vision
        )
        assert (await frank.message())["kind"] == "tenants"
        made = await sync_to_async(workloads.submit)(
            acting=seen.carol, project=seen.vision, document=training()
        )
        assert await frank.hears(made.pk)


async def test_who_is_no_longer_active_is_signed_out(seen: Cast, reader) -> None:
    async with reader(seen.dave.user) as dave:
        await User.objects.filter(pk=seen.dave.user.pk).aupdate(is_active=False)
        assert (await dave.receive_output(PATIENCE))["code"] == SIGNED_OUT


async def test_what_changed_between_a_page_and_its_line_is_heard(seen: Cast, reader) -> None:
    async with reader(seen.dave.user) as first:
        written = f"{time.time() + CLOCKS_APART_SECONDS:.3f}"
        made = await sync_to_async(workloads.submit)(
            acting=seen.dave, project=seen.vision, document=training()
        )
        assert await first.hears(made.pk)
        async with reader(seen.dave.user, written) as late, reader(seen.grace.user, written) as other:
            assert await late.hears(made.pk)
            assert await other.receive_nothing(timeout=0.2)


async def test_a_page_older_than_the_first_to_listen_looks_at_everything(seen: Cast, reader) -> None:
    async with reader(seen.dave.user, since="1.5") as dave:
        assert await dave.message() == {"kind": "everything", "ids": None}


@pytest.mark.parametrize("since", ["", "nan", "-1", "1e400", "yesterday", "9" * 400])
async def test_a_moment_that_is_none_asks_for_nothing(seen: Cast, reader, since: str) -> None:
    async with reader(seen.dave.user, since=since) as dave:
        assert await dave.receive_nothing(timeout=0.05)


async def test_every_role_hears_of_machines_and_an_account_without_one_does_not(seen: Cast, reader) -> None:
    async with reader(seen.erin.user) as erin, reader(seen.frank.user) as frank:
        await sync_to_async(make.scaling)(seen.pool, "ready", "answers", at=make.ago())
        assert await erin.message() == {"kind": "pools", "ids": None}
        await sync_to_async(members.grant)(
            acting=seen.alice, user=seen.frank.user, role="viewer", scope=seen.vision
        )
        assert (await frank.message())["kind"] == "tenants", "the note on machines was not sent before"
        await sync_to_async(make.scaling)(seen.pool, "ready", "again", at=make.ago())
        assert await frank.message() == {"kind": "pools", "ids": None}


async def test_what_a_page_says_is_dropped(seen: Cast, reader) -> None:
    async with reader(seen.dave.user) as dave:
        await dave.send_input({"type": "websocket.receive", "text": "not even JSON"})
        await dave.send_input({"type": "websocket.receive", "bytes": b"\x00"})
        made = await sync_to_async(workloads.submit)(
            acting=seen.dave, project=seen.vision, document=training()
        )
        assert await dave.hears(made.pk)


async def test_a_change_that_is_rolled_back_is_never_told(seen: Cast, reader) -> None:
    def undone() -> None:
        with pytest.raises(RuntimeError), transaction.atomic():
            workloads.submit(acting=seen.dave, project=seen.vision, document=training("undone"))
            raise RuntimeError

    async with reader(seen.dave.user) as dave:
        await sync_to_async(undone)()
        assert await dave.receive_nothing(timeout=0.3)


def test_a_burst_becomes_a_handful_of_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.server.web.live.announcer.GATHER_SECONDS", 60.0)  # however slow the machine is
    sent: list[int] = []
    announcer = Announcer()
    announcer.send = lambda: sent.append(len(announcer._waiting))  # type: ignore[method-assign]
    announcer._sent_at = float("inf")
    for _ in range(5000):
        announcer.tell("workload", project=1, department=1, ident=str(uuid.uuid4()))
    assert announcer._timer is not None
    announcer._timer.cancel()
    assert sent == []
    found = list(notes(announcer._waiting))
    assert found == [{"kind": "workload", "project": 1, "department": 1, "ids": None}]


def test_a_note_fits_in_what_the_database_carries() -> None:
    ids = {str(uuid.uuid4()) for _ in range(MOST_IDS)}
    (note,) = notes({("workload", (10**12, 10**12)): ids})
    assert len(str(note)) < 8000
    assert set(note["ids"]) == ids


@pytest.mark.parametrize(
    ("name", "sees"), [("alice", True), ("bob", True), ("dave", True), ("grace", False), ("frank", False)]
)
def test_sight_follows_the_roles(name: str, sees: bool, cast: Cast) -> None:
    note = {"kind": "workload", "project": cast.vision.pk, "department": cast.research.pk, "ids": None}
    assert sight_of(cast.people[name]).covers(note) is sees


def test_a_department_seen_in_part_tells_of_that_part_only() -> None:
    sight = Sight(False, frozenset(), frozenset({7}), capacity=True)
    assert sight.covers({"kind": "workload", "project": 7, "department": 1, "ids": None})
    assert not sight.covers({"kind": "workload", "project": 8, "department": 1, "ids": None})
