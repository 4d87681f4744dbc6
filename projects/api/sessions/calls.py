"""REST endpoints for session clients to submit calls and fetch results."""

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpResponse, StreamingHttpResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.core.frames import CONTENT_TYPE, Frame, pack_frames
from berth.core.problems import Problem, format_value
from berth.db.loops.wakeups import WakeupListener
from berth.server.api.idempotency import idempotent
from berth.server.api.parsers import FramesParser
from berth.server.api.requests import Body, Query, parse_body, parse_query, validate
from berth.server.api.responses import ResponseModel, no_content
from berth.server.api.schema import operation
from berth.server.api.transport.long_polling import WAIT_MAX, long_poll
from berth.server.api.views import ApiView
from projects import selectors
from projects.models import Session
from projects.services import sessions
from projects.services.sessions import calls
from projects.services.sessions.leases import CHANNEL

MAX_CALLS_PER_REQUEST = 1000
SESSION_BELL = WakeupListener(CHANNEL)


class CallMetadata(Body):
    """Metadata of a call, sent alongside its payload."""

    key: Annotated[UUID, Field(strict=False)]
    everywhere: bool = False


class ChildCallResponse(ResponseModel):
    key: UUID
    node: int


class BroadcastResponse(ResponseModel):
    key: UUID
    nodes: list[ChildCallResponse]


class SubmittedCallsResponse(ResponseModel):
    broadcasts: list[BroadcastResponse]


class CancelCallsBody(Body):
    keys: Annotated[tuple[Annotated[UUID, Field(strict=False)], ...], Field(max_length=10_000, strict=False)]


class ResultsQuery(Query):
    after: Annotated[
        int,
        Field(
            ge=0,
            le=2**53,
            description="Number of the last result received. Results up to this number are deleted.",
        ),
    ] = 0
    wait: Annotated[float, Field(ge=0, le=WAIT_MAX, description="Seconds to wait for a result.")] = 0


class CallsView(ApiView):
    def session(self, workload_id: UUID) -> Session:
        return sessions.get_session(self.actor, selectors.find_workload(self.actor, workload_id))


class Calls(CallsView):
    parser_classes = [FramesParser]

    @operation("Submit calls", body_type=CONTENT_TYPE, response=SubmittedCallsResponse, status=201)
    @idempotent
    def post(self, request: Request, workload_id: UUID) -> Response:
        session = self.session(workload_id)
        added = calls.add(session=session, calls=_parse_calls(request.data))
        broadcasts = [_serialize_broadcast(key, children) for key, children in added.children.items()]
        return Response(SubmittedCallsResponse(broadcasts=broadcasts), 201)


class CancelCalls(CallsView):
    @operation("Cancel calls", body=CancelCallsBody, status=204)
    @idempotent
    def post(self, request: Request, workload_id: UUID) -> Response:
        calls.cancel_calls(session=self.session(workload_id), keys=parse_body(request, CancelCallsBody).keys)
        return no_content()


class Results(CallsView):
    @operation("Fetch call results", query=ResultsQuery, media_type=CONTENT_TYPE)
    def get(self, request: Request, workload_id: UUID) -> HttpResponse | StreamingHttpResponse:
        query = parse_query(request, ResultsQuery)
        session = self.session(workload_id)

        def poll(last: bool) -> bytes | None:
            ended = calls.fetch_ended_calls(session=session, after=query.after)
            return pack_frames(_encode_result(call) for call in ended) if ended or last else None

        return long_poll(request, poll, bell=SESSION_BELL, key=str(session.pk), seconds=query.wait)


def _parse_calls(frames: Sequence[Frame] | Any) -> list[calls.NewCall]:
    if not isinstance(frames, list) or not frames or len(frames) > MAX_CALLS_PER_REQUEST:
        raise Invalid(
            [Problem("", "wrong number of calls", format_value(len(frames)), f"1 to {MAX_CALLS_PER_REQUEST}")]
        )
    parsed = []
    for header, payload in frames:
        metadata = validate(CallMetadata, header)
        parsed.append(calls.NewCall(metadata.key, payload, metadata.everywhere))
    if len({call.key for call in parsed}) < len(parsed):
        raise Invalid([Problem("key", "duplicate key", "", "each call once")])
    return parsed


def _serialize_broadcast(key: UUID, children: Sequence[calls.BroadcastCall]) -> BroadcastResponse:
    return BroadcastResponse(
        key=key, nodes=[ChildCallResponse(key=child.key, node=child.node) for child in children]
    )


def _encode_result(call: calls.EndedCall) -> Frame:
    header = {
        "number": call.number, "key": str(call.key), "outcome": call.outcome, "error": call.error,
        "node": call.node, "attempts": call.attempts, "late": call.late,
        "broadcast": str(call.broadcast) if call.broadcast else None,
    }  # fmt: skip
    return header, call.result
