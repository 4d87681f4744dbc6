"""REST endpoints for session workers, authenticated by pod secrets."""

import base64
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid, Unauthenticated
from berth.core.frames import CONTENT_TYPE, Frame, packed
from berth.core.problems import Problem, shown
from berth.core.spec.texts import Text
from berth.server.api.idempotency import idempotent
from berth.server.api.parsers import FramesParser
from berth.server.api.requests import Body, Query, no_query, parse_body, parse_query, validated
from berth.server.api.responses import Answer, no_content
from berth.server.api.schema import operation
from berth.server.api.transport.long_polling import WAIT_MAX, long_poll
from berth.server.api.views import TokenlessView
from projects.api.sessions.calls import RINGER
from projects.models import Pod
from projects.services.sessions import calls, workers
from projects.worker_program import worker_program

Version = Annotated[Text, Field(min_length=1, max_length=20)]
Number = Annotated[int, Field(ge=1, le=2**53)]
AT_ONCE = 1000
ERROR_MAX = 128 * 1024  # characters of the details of one result


class HelloBody(Body):
    python: Version
    cloudpickle: Version
    ready: Annotated[bool, Field(description="The worker accepts calls from now on.")] = False


class WelcomeAnswer(Answer):
    error: str = Field(description="Why the worker cannot be used; empty if it can.")
    executor: Literal["process", "thread"]
    slots: int
    result_bytes_max: int
    plugins: list[dict[str, Any]] = Field(description="Those of the pool; of secrets only that they are set.")
    setup: str = Field(description="Base64: what the client has for its workers.")


class HavingQuery(Query):
    having: Annotated[
        tuple[Number, ...],
        Field(max_length=10_000, description="Unfinished calls of the worker."),
    ] = ()


class OrdersQuery(HavingQuery):
    wait: Annotated[float, Field(ge=0, le=WAIT_MAX, description="Seconds to wait for a call.")] = 0


class LeaveBody(Body):
    error: Annotated[str, Field(max_length=20_000)] = ""


class ResultFields(Body):
    number: Number
    outcome: Literal["value", "error", "failed", "interrupted"]
    error: dict[str, str] = Field(default_factory=dict)


class WorkerView(TokenlessView):
    """A view authenticated by the secret of a live pod."""

    caller = "worker"

    def pod(self, request: Request) -> Pod:
        scheme, _, secret = str(request.headers.get("Authorization", "")).partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated("Send the secret of this worker's pod: Authorization: Bearer ...")
        return workers.pod_behind(secret.strip())


class Hello(WorkerView):
    @operation("Register a worker", body=HelloBody, answer=WelcomeAnswer)
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        pod, body = self.pod(request), parse_body(request, HelloBody)
        versions = workers.WorkerVersions(body.python, body.cloudpickle)
        error = workers.check_versions(pod=pod, versions=versions)
        if body.ready and not error:
            workers.join(pod=pod, versions=versions)
        session = pod.workload.session
        return Response(
            WelcomeAnswer(
                error=error, executor="thread" if session.executor == "thread" else "process",
                slots=session.slots, result_bytes_max=calls.limit(),
                plugins=pod.node.pool.plugins, setup=base64.b64encode(bytes(session.setup)).decode(),
            )
        )  # fmt: skip


class Orders(WorkerView):
    @operation("Fetch calls for a worker", query=OrdersQuery, media_type=CONTENT_TYPE)
    def get(self, request: Request) -> HttpResponse | StreamingHttpResponse:
        pod, query = self.pod(request), parse_query(request, OrdersQuery)

        def look(last: bool) -> bytes | None:
            if not last and not workers.has_changes(pod, query.having):
                return None
            return _orders(pod, query.having)

        workers.record_alive(pod=pod)
        return long_poll(request, look, bell=RINGER, key=str(pod.pk), seconds=query.wait)


class DoneCalls(WorkerView):
    parser_classes = [FramesParser]

    @operation(
        "Submit results of calls",
        query=HavingQuery,
        body_type=CONTENT_TYPE,
        media_type=CONTENT_TYPE,
    )
    @idempotent  # type: ignore[arg-type]  # without a user no idempotency key is stored
    def post(self, request: Request) -> HttpResponse:
        """Respond with the next calls, which saves one request per call."""
        pod, query = self.pod(request), parse_query(request, HavingQuery)
        workers.accept_results(pod=pod, results=_done(request.data))
        return HttpResponse(_orders(pod, query.having), content_type=CONTENT_TYPE)


class LeaveSession(WorkerView):
    @operation("Unregister a worker", body=LeaveBody, status=204)
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        pod = self.pod(request)
        workers.leave(pod=pod, error=parse_body(request, LeaveBody).error)
        return no_content()


def program(request: HttpRequest) -> HttpResponse:
    """Serve the program that pods of sessions run. It contains no secret."""
    return HttpResponse(worker_program(), content_type="application/zip")


def _orders(pod: Pod, having: Sequence[int]) -> bytes:
    stay = workers.instructions_for(pod)
    orders = () if stay.leave else workers.leased_calls(pod=pod, received=having)
    first: Frame = ({"leave": stay.leave, "at_once": stay.at_once}, b"")
    return packed([first, *(_frame(order) for order in orders)])


def _done(frames: Sequence[Frame] | Any) -> list[workers.CallResult]:
    if not isinstance(frames, list) or not frames or len(frames) > AT_ONCE:
        raise Invalid([Problem("", "wrong number of results", shown(len(frames)), f"1 to {AT_ONCE}")])
    results = []
    for header, result in frames:
        fields = validated(ResultFields, header)
        if sum(len(text) for text in fields.error.values()) > ERROR_MAX or len(result) > calls.limit():
            raise Invalid([Problem("", "is too large", "", f"{ERROR_MAX} characters, {calls.limit()} bytes")])
        results.append(workers.CallResult(fields.number, fields.outcome, _plain(fields.error), result))
    return results


def _plain(details: Mapping[str, str]) -> dict[str, str]:
    """Return the texts without NUL, which PostgreSQL does not store."""
    return {key.replace("\0", ""): text.replace("\0", "�") for key, text in details.items()}


def _frame(order: workers.LeasedCall) -> Frame:
    return {"number": order.number, "attempt": order.attempt}, order.payload
