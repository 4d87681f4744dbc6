"""REST endpoints that machines use to join a pool and poll for instructions.

Each request authenticates with a 256-bit secret. Requests with invalid secrets are throttled by IP address.
Registered machines are throttled individually, because many machines may share a proxy.
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
from berth.core.spec.values.quantities import Cores, Moment, to_thousandths
from berth.core.spec.values.texts import Name, Script, Text
from berth.server.api.idempotency import idempotent
from berth.server.api.requests import Body, parse_body
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import TokenlessView
from berth.server.wiring import load_wiring
from pools import services
from pools.api.schemas.inventory import InventoryBody
from pools.environments.code import worker_code
from pools.environments.progress import Phase
from pools.joining import secrets
from pools.joining.instructions import get_instructions
from pools.joining.package import agent_package
from pools.providers.base import Interruption
from pools.runtimes.ray.scripts import node_code
from pools.services.boots import BootReport, StartReport, load_environment_setup
from pools.services.joining import UNKNOWN_MACHINE, MachineReport

Secret = Annotated[Text, Field(min_length=1, max_length=400)]
Device = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9._:/-]+$")]
Address = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9._:-]+$")]

MachineId = Annotated[str, Field(max_length=64, pattern=r"^([A-Za-z0-9-]{16,})?$")]


def _check_distinct(devices: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(devices)) < len(devices):
        raise PydanticCustomError("twice", "contains a duplicate device", {"allowed": "each device once"})
    return devices


Devices = Annotated[tuple[Device, ...], Field(max_length=1024, strict=False), AfterValidator(_check_distinct)]


class JoinBody(Body):
    """Join request with the hardware that the machine detected.

    Only launched instances send an `instance_id`. A machine that joins again is recognized by its
    `machine_id`, or by its name if it sends no `machine_id`.
    """

    token: Secret
    name: Name
    address: Address
    instance_id: Annotated[Text, Field(max_length=128)] = ""
    cpu: Cores
    memory_mib: Annotated[int, Field(ge=1, le=2**31 - 1)]
    devices: Devices = ()
    gpu_model: Annotated[Text, Field(max_length=64)] = ""
    machine_id: MachineId = ""
    inventory: InventoryBody | None = None


class JoinResponse(ResponseModel):
    secret: str = Field(description="Secret that authenticates the machine's later requests.")


class InterruptionBody(Body):
    reason: Annotated[Text, Field(min_length=1, max_length=200)]
    at: Moment | None = None


class PhaseBody(Body):
    phase: Annotated[Text, Field(min_length=1, max_length=80)]
    state: Literal["running", "done", "failed"]
    seconds: Annotated[int, Field(ge=0, le=10**6)] = 0
    message: Annotated[Script, Field(max_length=4000)] = ""


class BootedBody(Body):
    """Progress of the `prepare` script, which installs the node's environment."""

    digest: Annotated[Text, Field(max_length=64)]
    phases: Annotated[tuple[PhaseBody, ...], Field(max_length=64, strict=False)] = ()
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = None
    output: Annotated[Script, Field(max_length=4000)] = ""


class StartedBody(Body):
    """Progress of the `start` script, which turns the machine into a node."""

    instance: Annotated[Text, Field(min_length=1, max_length=128)]
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = None
    seconds: Annotated[int, Field(ge=0, le=10**6)] = 0
    output: Annotated[Script, Field(max_length=4000)] = ""


class ReportBody(Body):
    interruption: InterruptionBody | None = Field(None, description="Interruption announced by the provider.")
    booted: BootedBody | None = Field(None, description="Progress of `prepare`.")
    started: StartedBody | None = Field(
        None, description="Progress of `start` for one `instance`; null before the script has started."
    )
    inventory: InventoryBody | None = None


class UpgradeResponse(ResponseModel):
    """Agent version that the machine must install now."""

    version: str
    sha256: str = Field(description="Hash of the file at `machines/agent`.")
    script: str = Field(description="Script to run first, which upgrades the node without ending pods.")


class InstructionsResponse(ResponseModel):
    node: str | None = Field(description="Node assigned to the machine; null if there is none.")
    ordinal: int | None
    instance: str = Field(
        description="Instance that the scripts are for; the machine returns it in `started`."
    )
    digest: str = Field(description="Digest of the environment that `prepare` installs.")
    prepare: str = Field(
        description="Script to run first; empty if there is none. Report its progress in `booted`."
    )
    secrets: dict[str, str] | None = Field(description="Variables for `prepare`, never written to a file.")
    start: str = Field(description="Idempotent shell script that turns the machine into this node.")
    stop: str = Field(description="Shell script that undoes `start`.")
    check: str = Field(
        description="Shell script that exits with 0 if the node started by `start` still runs."
    )
    update: str = Field(
        description="Shell script that applies a changed `start` to the running node without ending its pods."
    )
    upgrade: UpgradeResponse | None = Field(description="Null if the agent keeps its version.")


class MachineView(TokenlessView):
    caller = "machine"

    def machine_secret(self, headers: Mapping[str, Any]) -> str:
        """Return the machine's secret from the headers. Raises Unauthenticated if Berth did not issue it."""
        secret = _bearer_token(headers)
        if not secrets.is_machine_secret(secret):
            raise Unauthenticated(UNKNOWN_MACHINE)
        self.spend("write", f"machine {secret}")
        return secret


class JoinPool(MachineView):
    @operation("Join a machine to a pool", body=JoinBody, response=JoinResponse)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        body = parse_body(request, JoinBody)
        measured = MachineReport(
            name=body.name, address=body.address, cpu_milli=to_thousandths(body.cpu),
            memory_mib=body.memory_mib, devices=body.devices, gpu_model=body.gpu_model,
            instance_id=body.instance_id, machine_id=body.machine_id,
            inventory=_inventory_to_dict(body.inventory) or {},
        )  # fmt: skip
        secret = services.join(pool_name=name, token=body.token, measured=measured, at=timezone.now())
        return Response(JoinResponse(secret=secret))


class ReportMachine(MachineView):
    @operation(
        "Report a machine's state and get its instructions", body=ReportBody, response=InstructionsResponse
    )
    @idempotent
    def post(self, request: Request) -> Response:
        body = parse_body(request, ReportBody)
        reported = body.interruption
        interruption = Interruption(reported.reason, reported.at) if reported else None
        node = services.record_report(
            self.machine_secret(request.headers), at=timezone.now(), interruption=interruption,
            booted=_to_boot_report(body.booted), started=_to_start_report(body.started),
            inventory=_inventory_to_dict(body.inventory),
        )  # fmt: skip
        installed = body.inventory.agent_version if body.inventory else ""
        release = services.release_to_install(node, installed)
        if node is None:
            return Response(NO_NODE.model_copy(update={"upgrade": _upgrade_response(release, "")}))
        instructions = get_instructions(load_wiring().runtime_for(node.pool), node)
        environment = load_environment_setup(node)
        is_installing = node.environment_id is not None and node.prepared_at is None
        return Response(
            InstructionsResponse(
                node=node.name, ordinal=node.ordinal, instance=node.instance_id,
                start="" if is_installing else instructions.start, stop=instructions.stop,
                update=instructions.update, check=instructions.check, digest=environment.digest,
                prepare=environment.script, secrets=dict(environment.secrets),
                upgrade=_upgrade_response(release, instructions.upgrade),
            )
        )  # fmt: skip


NO_NODE = InstructionsResponse(
    node=None, ordinal=None, instance="", start="", stop="", update="", check="", digest="", prepare="",
    secrets={}, upgrade=None,
)  # fmt: skip


def _upgrade_response(release: services.AgentRelease | None, script: str) -> UpgradeResponse | None:
    if release is None:
        return None
    return UpgradeResponse(version=release.version, sha256=release.sha256, script=script)


def _to_boot_report(body: BootedBody | None) -> BootReport | None:
    if body is None:
        return None
    phases = tuple(Phase(phase.phase, phase.state, phase.seconds, phase.message) for phase in body.phases)
    return BootReport(body.digest, phases, body.exit_code, body.output)


def _to_start_report(body: StartedBody | None) -> StartReport | None:
    return None if body is None else StartReport(body.instance, body.exit_code, body.seconds, body.output)


def _inventory_to_dict(body: InventoryBody | None) -> dict[str, Any] | None:
    return None if body is None else body.model_dump(mode="json")


class LeavePool(MachineView):
    @operation("Remove the requesting machine permanently", status=204)
    @idempotent
    def post(self, request: Request) -> Response:
        services.leave(self.machine_secret(request.headers), at=timezone.now())
        return Response(status=204)


def download_agent(request: HttpRequest) -> HttpResponse:
    """Return the agent that machines run to join a pool. It contains no secret."""
    return HttpResponse(agent_package(), content_type="application/zip")


def download_worker_code(request: HttpRequest) -> HttpResponse:
    """Return Berth's worker code. It contains no secret."""
    return HttpResponse(worker_code(), content_type="application/x-tar")


def download_node_code(request: HttpRequest) -> HttpResponse:
    """Return the code that Ray nodes run in addition to Ray. It contains no secret."""
    return HttpResponse(node_code(), content_type="application/gzip")


def _bearer_token(headers: Mapping[str, Any]) -> str:
    scheme, _, secret = str(headers.get("Authorization", "")).partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise Unauthenticated("Send the machine's secret in the header `Authorization: Bearer ...`.")
    return secret.strip()
