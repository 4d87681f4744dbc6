"""REST endpoints by which machines join a pool and poll for instructions.

These doors know no people: the secret in the request is all there is. Each is a random one or a signed one
of 256 bits. Who says what makes no sense is counted by address; a machine that we know by itself, so that
nobody's noise keeps it from calling, though all of them may come through one proxy.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Unauthenticated
from berth.core.spec.quantities import Cores, Moment, in_thousandths
from berth.core.spec.texts import Name, Script, Text
from berth.server.api.idempotency import idempotent
from berth.server.api.requests import Body, no_query, parse_body
from berth.server.api.responses import Answer
from berth.server.api.schema import operation
from berth.server.api.views import TokenlessView
from berth.server.wiring import wired
from pools import services
from pools.environments.code import worker_code
from pools.environments.progress import Phase
from pools.joining import secrets
from pools.joining.instructions import instructions_of
from pools.joining.user_data import program
from pools.providers.base import Interruption
from pools.runtimes.ray.scripts import node_code
from pools.services.boots import Booted, Started, to_prepare
from pools.services.joining import UNKNOWN, Measured

Secret = Annotated[Text, Field(min_length=1, max_length=400)]
Device = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9._:/-]+$")]
Address = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9._:-]+$")]


def _distinct(devices: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(devices)) < len(devices):
        raise PydanticCustomError("twice", "lists a device twice", {"allowed": "each device once"})
    return devices


Devices = Annotated[tuple[Device, ...], Field(max_length=1024, strict=False), AfterValidator(_distinct)]


class JoinBody(Body):
    """What the machine measured. `instance_id` is its provider's name for it, where it has one."""

    token: Secret
    name: Name
    address: Address
    instance_id: Annotated[Text, Field(max_length=128)] = ""
    cpu: Cores
    memory_mib: Annotated[int, Field(ge=1, le=2**31 - 1)]
    devices: Devices = ()
    gpu_model: Annotated[Text, Field(max_length=64)] = ""


class JoinAnswer(Answer):
    secret: str = Field(description="Authenticates the machine's later calls.")


class InterruptionBody(Body):
    reason: Annotated[Text, Field(min_length=1, max_length=200)]
    at: Moment | None = None


class PhaseBody(Body):
    phase: Annotated[Text, Field(min_length=1, max_length=80)]
    state: Literal["running", "done", "failed"]
    seconds: Annotated[int, Field(ge=0, le=10**6)] = 0
    message: Annotated[Script, Field(max_length=4000)] = ""


class BootedBody(Body):
    """How far the script in `prepare` is."""

    digest: Annotated[Text, Field(max_length=64)]
    phases: Annotated[tuple[PhaseBody, ...], Field(max_length=64, strict=False)] = ()
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = None
    output: Annotated[Script, Field(max_length=4000)] = ""


class StartedBody(Body):
    """The progress of the script in `start`."""

    instance: Annotated[Text, Field(min_length=1, max_length=128)]
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = None
    seconds: Annotated[int, Field(ge=0, le=10**6)] = 0
    output: Annotated[Script, Field(max_length=4000)] = ""


class CallBody(Body):
    interruption: InterruptionBody | None = Field(None, description="Interruption announced by the provider.")
    booted: BootedBody | None = Field(None, description="Progress of `prepare`.")
    started: StartedBody | None = Field(
        None, description="Progress of `start`, for the instance that the answer named; null before it runs."
    )


class CallAnswer(Answer):
    node: str | None = Field(description="Node that the machine is to become; null for none.")
    ordinal: int | None
    instance: str = Field(description="The instance that the scripts are for; sent back in `started`.")
    digest: str = Field(description="Digest of the environment that `prepare` installs.")
    prepare: str = Field(description="Script to run first, with its progress reported; empty for none.")
    secrets: dict[str, str] | None = Field(description="Variables for `prepare`, never written to a file.")
    start: str = Field(description="Idempotent shell script that makes the machine this node.")
    stop: str = Field(description="Shell script that undoes `start`.")


class MachineDoor(TokenlessView):
    caller = "machine"

    def known(self, headers: Mapping[str, Any]) -> str:
        """The machine's secret, if it is one that we gave."""
        secret = _secret(headers)
        if not secrets.is_a_machines(secret):
            raise Unauthenticated(UNKNOWN)
        self.spend("write", f"machine {secret}")
        return secret


class Join(MachineDoor):
    @operation("Join a machine to a pool", body=JoinBody, answer=JoinAnswer)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        no_query(request)
        body = parse_body(request, JoinBody)
        measured = Measured(
            name=body.name, address=body.address, cpu_milli=in_thousandths(body.cpu),
            memory_mib=body.memory_mib, devices=body.devices, gpu_model=body.gpu_model,
            instance_id=body.instance_id,
        )  # fmt: skip
        secret = services.join(pool_name=name, token=body.token, measured=measured, at=timezone.now())
        return Response(JoinAnswer(secret=secret))


class Call(MachineDoor):
    @operation("Report a machine's state and get its instructions", body=CallBody, answer=CallAnswer)
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        body = parse_body(request, CallBody)
        given = body.interruption
        interruption = Interruption(given.reason, given.at) if given else None
        node = services.call(
            self.known(request.headers), at=timezone.now(), interruption=interruption,
            booted=_booted(body.booted), started=_started(body.started),
        )  # fmt: skip
        if node is None:
            return Response(NOTHING_YET)
        told = instructions_of(wired().runtime_of(node.pool), node)
        first = to_prepare(node)
        waits = node.environment_id is not None and node.prepared_at is None
        return Response(
            CallAnswer(
                node=node.name, ordinal=node.ordinal, instance=node.instance_id,
                start="" if waits else told.start, stop=told.stop,
                digest=first.digest, prepare=first.script, secrets=dict(first.secrets),
            )
        )  # fmt: skip


NOTHING_YET = CallAnswer(
    node=None, ordinal=None, instance="", start="", stop="", digest="", prepare="", secrets={}
)  # fmt: skip


def _booted(said: BootedBody | None) -> Booted | None:
    if said is None:
        return None
    phases = tuple(Phase(each.phase, each.state, each.seconds, each.message) for each in said.phases)
    return Booted(said.digest, phases, said.exit_code, said.output)


def _started(body: StartedBody | None) -> Started | None:
    return None if body is None else Started(body.instance, body.exit_code, body.seconds, body.output)


class Leave(MachineDoor):
    @operation("Remove the calling machine for good", status=204)
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        services.leave(self.known(request.headers), at=timezone.now())
        return Response(status=204)


def join_program(request: HttpRequest) -> HttpResponse:
    """What machines run to join and to call; it holds no secret."""
    return HttpResponse(program(), content_type="text/x-python; charset=utf-8")


def worker_code_door(request: HttpRequest) -> HttpResponse:
    """What workers run of Berth itself; it holds no secret."""
    return HttpResponse(worker_code(), content_type="application/x-tar")


def join_node_code(request: HttpRequest) -> HttpResponse:
    """What a node of a Ray cluster runs besides Ray; it holds no secret."""
    return HttpResponse(node_code(), content_type="application/gzip")


def _secret(headers: Mapping[str, Any]) -> str:
    scheme, _, secret = str(headers.get("Authorization", "")).partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise Unauthenticated("Send the machine secret as Authorization: Bearer ...")
    return secret.strip()
