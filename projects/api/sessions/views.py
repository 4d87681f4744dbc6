"""REST endpoints that open, show and end sessions."""

import base64
import binascii
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.conf import settings
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec.roles import REPLICAS_MAX, Environment, Labels, Seconds, SecretUses
from berth.core.spec.values.quantities import Cores, Gpus, Mebibytes, Priority
from berth.core.spec.values.texts import Name, Text
from berth.core.values.images import Image, PullPolicy
from berth.server.api.idempotency import idempotent
from berth.server.api.requests import Body, NoBody, parse_body
from berth.server.api.responses import ResponseModel, created_response
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.access import Action
from projects.api.workloads.schemas import PhaseName
from projects.models import Session, SessionWorker
from projects.services import sessions
from projects.services.sessions import calls

Count = Annotated[int, Field(ge=1, le=REPLICAS_MAX)]
Version = Annotated[Text, Field(min_length=1, max_length=20, pattern=r"^\d+\.\d+[0-9A-Za-z.+-]*$")]
MAX_SETUP_LENGTH = 600_000  # maximum length of the setup in characters


def _validate_base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise PydanticCustomError("base64", "is not valid base64", {"allowed": "base64"}) from None
    return text


class SessionNode(Body):
    """Number of nodes, and the resources of each node."""

    replicas: Count | None = None
    min: Count | None = None
    max: Count | None = None
    gpu: Gpus = 0
    cpu: Cores = 0
    memory_mib: Mebibytes = 0


class SessionBody(Body):
    name: Name
    project: Name | None = None
    pools: Annotated[tuple[Name, ...], Field(max_length=256, strict=False)] = ()
    node: SessionNode = SessionNode(replicas=1)
    priority: Priority | None = None
    preemptible: bool | None = None
    max_runtime: Annotated[Seconds, Field(ge=1)] | None = None
    env: Environment = Field(default_factory=dict)
    secrets: SecretUses = ()
    image: Image | None = None
    image_pull_policy: PullPolicy = "if_not_present"
    labels: Labels = Field(default_factory=dict)
    executor: Literal["process", "thread"] = "process"
    slots: Annotated[int, Field(ge=1, le=256, description="Concurrent calls per node.")] = 1
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    idle_timeout: Annotated[int, Field(ge=5, le=7 * 86_400)] = 600
    python: Version
    cloudpickle: Version
    setup: Annotated[
        str,
        Field(max_length=MAX_SETUP_LENGTH, description="Opaque data for the workers, in base64."),
        AfterValidator(_validate_base64),
    ] = ""


class SessionNodeResponse(ResponseModel):
    """Session node that accepts calls."""

    node: int
    pod: UUID
    pool: str
    python: str
    joined_at: datetime


class SessionStateResponse(ResponseModel):
    id: UUID
    name: str
    project: str
    phase: PhaseName
    reason: str
    message: str
    error: str
    run: int
    executor: Literal["process", "thread"]
    slots: int
    max_attempts: int
    idle_timeout: int
    call_bytes_max: int
    nodes: list[SessionNodeResponse] = Field(description="The nodes that accept calls.")
    ended: int = Field(description="Number of calls that have ended.")


class Sessions(ApiView):
    @operation("Create a session", body=SessionBody, response=SessionStateResponse, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        body = parse_body(request, SessionBody)
        address = settings.BERTH_PUBLIC_URL or request.build_absolute_uri("/").rstrip("/")
        session = sessions.open_session(
            actor=self.actor, document=_build_document(body), settings=_build_settings(body, address)
        )
        return created_response(serialize_session(session), f"/api/v1/sessions/{session.pk}")


class SessionDetail(ApiView):
    @operation("Get a session and the nodes that accept calls", response=SessionStateResponse)
    def get(self, request: Request, workload_id: UUID) -> Response:
        workload = selectors.find_workload(self.actor, workload_id)
        return Response(serialize_session(sessions.get_session(self.actor, workload, Action.VIEW)))


class EndSession(ApiView):
    @operation("Complete a session", response=SessionStateResponse)
    @idempotent
    def post(self, request: Request, workload_id: UUID) -> Response:
        parse_body(request, NoBody)
        session = sessions.get_session(self.actor, selectors.find_workload(self.actor, workload_id))
        session.workload = sessions.end_session(actor=self.actor, session=session)
        return Response(serialize_session(session))


def serialize_session(session: Session) -> SessionStateResponse:
    workload = session.workload
    ready = session.workers.filter(state=SessionWorker.State.READY).select_related("pod__node__pool")
    return SessionStateResponse(
        id=session.pk,
        name=workload.name,
        project=workload.project.name,
        **{name: getattr(workload, name) for name in ("phase", "reason", "message", "run")},
        **{name: getattr(session, name) for name in _SESSION_FIELDS},
        call_bytes_max=calls.max_call_bytes(),
        ended=session.ended_count,
        error=session.error,
        nodes=[
            SessionNodeResponse.from_row(worker, pod=worker.pod_id, pool=worker.pod.node.pool.name)
            for worker in ready.order_by("node")
        ],
    )  # fmt: skip


_SESSION_FIELDS = ("executor", "slots", "max_attempts", "idle_timeout")


def _build_document(body: SessionBody) -> dict[str, Any]:
    copied_keys = (
        "name", "project", "pools", "priority", "preemptible", "max_runtime", "env", "labels", "image",
        "image_pull_policy",
    )  # fmt: skip
    values = body.explicit_values()
    return {
        **{name: values[name] for name in copied_keys if name in values and values[name] is not None},
        **({"secrets": [use.model_dump(exclude_none=True) for use in body.secrets]} if body.secrets else {}),
        "node": body.node.model_dump(exclude_none=True),
    }


def _build_settings(body: SessionBody, address: str) -> sessions.SessionSettings:
    copied_fields = ("executor", "slots", "max_attempts", "idle_timeout", "python", "cloudpickle")
    setup = base64.b64decode(body.setup)
    return sessions.SessionSettings(
        address=address, setup=setup, **{name: getattr(body, name) for name in copied_fields}
    )
