"""Here we show what the server does before Django sees a request: endless bodies end here."""

import json
from typing import Any

import pytest

from berth.api.asgi import Rest
from berth.api.parsers import BODY_MAX
from projects.models import Workload
from projects.services import tokens
from tests.api.wire import Wire
from tests.cast import make_cast, training

PIECE = b"x" * 65536


@pytest.fixture
def secret(transactional_db: None) -> str:
    cast = make_cast()
    return tokens.issue(acting=cast.dave, name="t", scopes=["read", "write"], expires_at=None)[1]


def submission(secret: str, **given: Any) -> Wire:
    headers = {"content-type": "application/json", **given.pop("headers", {})}
    return Wire("/api/v1/workloads", secret=secret, method="POST", headers=headers, **given)


async def answered(wire: Wire) -> Wire:
    await Rest(pages)(wire.scope, wire.receive, wire.send)
    return wire


async def pages(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 299, "headers": []})


async def test_a_body_that_announces_its_length_is_not_even_read(secret: str) -> None:
    wire = submission(secret, headers={"content-length": str(BODY_MAX + 1)}, parts=(PIECE,) * 200)
    await answered(wire)
    assert (wire.status, len(wire.left)) == (413, 200)
    assert json.loads(wire.body)["code"] == "too-large"


async def test_a_body_without_a_length_is_read_up_to_the_limit(secret: str) -> None:
    wire = submission(secret, parts=(PIECE,) * 200)
    await answered(wire)
    assert (wire.status, len(wire.left)) == (413, 200 - BODY_MAX // len(PIECE) - 1)


async def test_a_submission_in_pieces_is_a_submission(secret: str) -> None:
    text = json.dumps(training(project="vision")).encode()
    wire = submission(secret, headers={"content-length": str(len(text))}, parts=(text[:10], text[10:]))
    await answered(wire)
    assert wire.status == 201, wire.body
    assert await Workload.objects.acount() == 1


async def test_pages_are_not_for_this_door() -> None:
    assert (await answered(Wire("/workloads"))).status == 299
