"""REST endpoints for session workers, authenticated by pod secrets."""

import base64
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid, Unauthenticated
from berth.core.frames import CONTENT_TYPE, Frame, pack_frames
from berth.core.problems import Problem, format_value
from berth.core.spec.values.texts import Text
from berth.server.api.idempotency import idempotent
from berth.server.api.parsers import FramesParser
from berth.server.api.requests import Body, Query, parse_body, parse_query, validate
from berth.server.api.responses import ResponseModel, no_content
from berth.server.api.schema import operation
from berth.server.api.transport.long_polling import WAIT_MAX, long_poll
from berth.server.api.views import TokenlessView
from projects.api.sessions.calls import SESSION_BELL
from projects.models import Pod
from projects.services.sessions import calls, workers
from projects.worker_program import build_worker_program

Version = Annotated[Text, Field(min_length=1, max_length=20)]
Number = Annotated[int, Field(ge=1, le=2**53)]
MAX_RESULTS_PER_REQUEST = 1000
MAX_ERROR_LENGTH = 128 * 1024  # maximum length of a result's error details, in characters


class RegisterWorkerBody(Body):
    python: Version
    cloudpickle: Version
    ready: Annotated[bool, Field(description="Whether the worker is ready to accept calls.")] = False


class RegisterWorkerResponse(ResponseModel):
    error: str = Field(description="Reason the worker cannot be used; empty if it can.")
    executor: Literal["process", "thread"]
    slots: int
    result_bytes_max: int
    plugins: list[dict[str, Any]] = Field(description="Plugins of the pool, without the values of secrets.")
    setup: str = Field(description="The client's setup data for its workers, in base64.")


class UnfinishedCallsQuery(Query):
    having: Annotated[
        tuple[Number, ...],
        Field(max_length=10_000, description="Numbers of the worker's unfinished calls."),
    ] = ()


class FetchCallsQuery(UnfinishedCallsQuery):
    wait: Annotated[float, Field(ge=0, le=WAIT_MAX, description="Seconds to wait for a call.")] = 0


class LeaveBody(Body):
    error: Annotated[str, Field(max_length=20_000)] = ""


class ResultFields(Body):
    number: Number
    outcome: Literal["value", "error", "failed", "interrupted"]
    error: dict[str, str] = Field(default_factory=dict)


class WorkerView(TokenlessView):
    """Base view that authenticates a live pod by its secret."""

    caller = "worker"

    def pod(self, request: Request) -> Pod:
        scheme, _, secret = str(request.headers.get("Authorization", "")).partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated(
                "Send the secret of the worker's pod in the header `Authorization: Bearer ...`."
            )
        return workers.authenticate_pod(secret.strip())


class RegisterWorker(WorkerView):
    @operation("Register a worker", body=RegisterWorkerBody, response=RegisterWorkerResponse)
    @idempotent
    def post(self, request: Request) -> Response:
        pod, body = self.pod(request), parse_body(request, RegisterWorkerBody)
        versions = workers.WorkerVersions(body.python, body.cloudpickle)
        error = workers.fail_on_version_mismatch(pod=pod, versions=versions)
        if body.ready and not error:
            workers.join(pod=pod, versions=versions)
        session = pod.workload.session
        return Response(
            RegisterWorkerResponse(
                error=error, executor="thread" if session.executor == "thread" else "process",
                slots=session.slots, result_bytes_max=calls.max_call_bytes(),
                plugins=pod.node.pool.plugins, setup=base64.b64encode(bytes(session.setup)).decode(),
            )
        )  # fmt: skip


class FetchCalls(WorkerView):
    @operation("Fetch calls for a worker", query=FetchCallsQuery, media_type=CONTENT_TYPE)
    def get(self, request: Request) -> HttpResponse | StreamingHttpResponse:
        pod, query = self.pod(request), parse_query(request, FetchCallsQuery)

        def poll(last: bool) -> bytes | None:
            if not last and not workers.has_instructions(pod, query.having):
                return None
            return _encode_calls(pod, query.having)

        workers.record_heartbeat(pod=pod)
        return long_poll(request, poll, bell=SESSION_BELL, key=str(pod.pk), seconds=query.wait)


class SubmitResults(WorkerView):
    parser_classes = [FramesParser]

    @operation(
        "Submit call results",
        query=UnfinishedCallsQuery,
        body_type=CONTENT_TYPE,
        media_type=CONTENT_TYPE,
    )
    @idempotent  # type: ignore[arg-type] # without a user, responses are not stored and may have any type
    def post(self, request: Request) -> HttpResponse:
        """Store results and return the worker's next calls, which saves it a request per call."""
        pod, query = self.pod(request), parse_query(request, UnfinishedCallsQuery)
        workers.accept_results(pod=pod, results=_parse_results(request.data))
        return HttpResponse(_encode_calls(pod, query.having), content_type=CONTENT_TYPE)


class LeaveSession(WorkerView):
    @operation("Unregister a worker", body=LeaveBody, status=204)
    @idempotent
    def post(self, request: Request) -> Response:
        pod = self.pod(request)
        workers.leave(pod=pod, error=parse_body(request, LeaveBody).error)
        return no_content()


def program(request: HttpRequest) -> HttpResponse:
    """Serve the worker program of session pods. It contains no secrets."""
    return HttpResponse(build_worker_program(), content_type="application/zip")


def _encode_calls(pod: Pod, received: Sequence[int]) -> bytes:
    instructions = workers.instructions_for(pod)
    leased = () if instructions.leave else workers.deliver_leased_calls(pod=pod, received=received)
    first: Frame = ({"leave": instructions.leave, "at_once": instructions.at_once}, b"")
    return pack_frames([first, *(_encode_call(call) for call in leased)])


def _parse_results(frames: Sequence[Frame] | Any) -> list[workers.CallResult]:
    if not isinstance(frames, list) or not frames or len(frames) > MAX_RESULTS_PER_REQUEST:
        raise Invalid(
            [
                Problem(
                    "",
                    "wrong number of results",
                    format_value(len(frames)),
                    f"1 to {MAX_RESULTS_PER_REQUEST}",
                )
            ]
        )
    results = []
    for header, result in frames:
        fields = validate(ResultFields, header)
        if (
            sum(len(text) for text in fields.error.values()) > MAX_ERROR_LENGTH
            or len(result) > calls.max_call_bytes()
        ):
            raise Invalid(
                [
                    Problem(
                        "",
                        "is too large",
                        "",
                        f"{MAX_ERROR_LENGTH} characters, {calls.max_call_bytes()} bytes",
                    )
                ]
            )
        results.append(workers.CallResult(fields.number, fields.outcome, _replace_nul(fields.error), result))
    return results


def _replace_nul(details: Mapping[str, str]) -> dict[str, str]:
    """Remove or replace NUL characters, which PostgreSQL cannot store."""
    return {key.replace("\0", ""): text.replace("\0", "�") for key, text in details.items()}


def _encode_call(order: workers.LeasedCall) -> Frame:
    return {"number": order.number, "attempt": order.attempt}, order.payload
