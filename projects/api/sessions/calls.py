"""REST endpoints by which a session's client submits calls and fetches results."""

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpResponse, StreamingHttpResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.core.frames import CONTENT_TYPE, Frame, packed
from berth.core.problems import Problem, shown
from berth.db.bell import Bell
from berth.server.api.idempotency import idempotent
from berth.server.api.parsers import FramesParser
from berth.server.api.requests import Body, Query, no_query, parse_body, parse_query, validated
from berth.server.api.responses import Answer, no_content
from berth.server.api.schema import operation
from berth.server.api.transport.long_polling import WAIT_MAX, long_poll
from berth.server.api.views import ApiView
from projects import selectors
from projects.models import Session
from projects.services import sessions
from projects.services.sessions import calls
from projects.services.sessions.leases import CHANNEL

AT_ONCE = 1000
RINGER = Bell(CHANNEL)


class CallWords(Body):
    """The metadata of a call, beside its bytes."""

    key: Annotated[UUID, Field(strict=False)]
    everywhere: bool = False


class ChildAnswer(Answer):
    key: UUID
    node: int


class BroadcastAnswer(Answer):
    key: UUID
    nodes: list[ChildAnswer]


class AddedAnswer(Answer):
    broadcasts: list[BroadcastAnswer]


class Dropped(Body):
    keys: Annotated[tuple[Annotated[UUID, Field(strict=False)], ...], Field(max_length=10_000, strict=False)]


class ResultsQuery(Query):
    after: Annotated[int, Field(ge=0, le=2**53, description="Results up to this number are deleted.")] = 0
    wait: Annotated[float, Field(ge=0, le=WAIT_MAX, description="Seconds to wait for a result.")] = 0


class CallsView(ApiView):
    def session(self, workload_id: UUID) -> Session:
        return sessions.get_session(self.acting, selectors.find_workload(self.acting, workload_id))


class Calls(CallsView):
    parser_classes = [FramesParser]

    @operation("Submit calls", body_type=CONTENT_TYPE, answer=AddedAnswer, status=201)
    @idempotent
    def post(self, request: Request, workload_id: UUID) -> Response:
        no_query(request)
        session = self.session(workload_id)
        added = calls.add(session=session, calls=_calls(request.data))
        broadcasts = [_broadcast(key, children) for key, children in added.children.items()]
        return Response(AddedAnswer(broadcasts=broadcasts), 201)


class DropCalls(CallsView):
    @operation("Drop calls", body=Dropped, status=204)
    @idempotent
    def post(self, request: Request, workload_id: UUID) -> Response:
        no_query(request)
        calls.cancel_calls(session=self.session(workload_id), keys=parse_body(request, Dropped).keys)
        return no_content()


class Results(CallsView):
    @operation("Fetch results of calls", query=ResultsQuery, media_type=CONTENT_TYPE)
    def get(self, request: Request, workload_id: UUID) -> HttpResponse | StreamingHttpResponse:
        query = parse_query(request, ResultsQuery)
        session = self.session(workload_id)

        def look(last: bool) -> bytes | None:
            ended = calls.take_ended(session=session, after=query.after)
            return packed(_frame(one) for one in ended) if ended or last else None

        return long_poll(request, look, bell=RINGER, key=str(session.pk), seconds=query.wait)


def _calls(frames: Sequence[Frame] | Any) -> list[calls.NewCall]:
    if not isinstance(frames, list) or not frames or len(frames) > AT_ONCE:
        raise Invalid([Problem("", "wrong number of calls", shown(len(frames)), f"1 to {AT_ONCE}")])
    parsed = []
    for words, payload in frames:
        call_words = validated(CallWords, words)
        parsed.append(calls.NewCall(call_words.key, payload, call_words.everywhere))
    if len({call.key for call in parsed}) < len(parsed):
        raise Invalid([Problem("key", "duplicate key", "", "each call once")])
    return parsed


def _broadcast(key: UUID, children: Sequence[calls.Child]) -> BroadcastAnswer:
    return BroadcastAnswer(key=key, nodes=[ChildAnswer(key=child.key, node=child.node) for child in children])


def _frame(one: calls.Ended) -> Frame:
    words = {
        "number": one.number, "key": str(one.key), "outcome": one.outcome, "error": one.error,
        "node": one.node, "attempts": one.attempts, "late": one.late,
        "broadcast": str(one.broadcast) if one.broadcast else None,
    }  # fmt: skip
    return words, one.result
