"""Load a service with its settings, inference engines, active request and processes."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Q

from berth.core.spec.sections.service import ServiceSpec
from berth.db.queries.compiled import compiled_once
from projects.engine.inference_engines import ProcessState
from projects.engine.scaling import FINAL
from projects.models import InferenceEngine, Phase, Pod, PodState, ScaleRequest, Service, Workload
from projects.models.workloads import ENDED_PHASES
from projects.services.inference.rules import service_settings

Pods = Mapping[tuple[uuid.UUID | None, int], Pod]

# Compiled once, because a pass over a service runs these queries up to three times.
ENGINES = compiled_once(
    lambda service: (
        InferenceEngine.objects.filter(Q(ended_at__isnull=True) | ~Q(router_url=""), service_id=service)
        .select_related("workload")
        .order_by("number")
    )
)
ACTIVE_REQUEST = compiled_once(
    lambda service: ScaleRequest.objects.filter(service_id=service).exclude(status__in=FINAL).order_by()
)
LIVE_PODS = compiled_once(
    lambda workloads, role: Pod.objects.filter(
        workload_id__any=workloads, role=role, state__in=(PodState.STARTING, PodState.RUNNING)
    ).select_related("node")
)


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """Process of an inference engine, with its address or the reason why it ended."""

    process_state: ProcessState
    url: str = ""
    pod_id: uuid.UUID | None = None
    error: str = ""
    started_once: bool = False


@dataclass(frozen=True, slots=True)
class ServiceView:
    service: Service
    spec: ServiceSpec
    engines: Sequence[InferenceEngine]
    request: ScaleRequest | None
    processes: Mapping[uuid.UUID, EngineProcess]

    @property
    def has_ended(self) -> bool:
        return self.service.workload.phase in ENDED_PHASES


def load_view(service: Service) -> ServiceView:
    engines = list(ENGINES(service.pk))
    for engine in engines:
        engine.service = service
    request = next(iter(ACTIVE_REQUEST(service.pk)), None)
    if request is not None:
        request.service = service
    return ServiceView(
        service, service_settings(service.workload), engines, request, _processes_by_engine(service, engines)
    )


def _processes_by_engine(
    service: Service, engines: Sequence[InferenceEngine]
) -> dict[uuid.UUID, EngineProcess]:
    owners = [engine.workload_id for engine in engines if engine.workload_id]
    by_engine: Pods = {(pod.workload_id, pod.index): pod for pod in LIVE_PODS(owners, service.role)}
    return {engine.pk: _summarize_process(engine, by_engine) for engine in engines}


def _summarize_process(engine: InferenceEngine, pods: Pods) -> EngineProcess:
    if engine.origin == "external":
        is_leaving = engine.state == "REMOVING"
        return EngineProcess(ProcessState.ENDED if is_leaving else ProcessState.RUNNING, engine.url)
    workload = engine.workload
    if workload is None:
        return EngineProcess(
            ProcessState.ENDED, error="The workload of this engine has been deleted.", started_once=True
        )
    if workload.phase in ENDED_PHASES:
        has_started = workload.first_started_at is not None or engine.url != ""
        return EngineProcess(ProcessState.ENDED, error=_end_message(workload), started_once=has_started)
    pod = pods.get((workload.pk, engine.index))
    if pod is None or pod.state != PodState.RUNNING or workload.phase == Phase.STOPPING:
        return EngineProcess(ProcessState.PENDING)
    if pod.endpoint is None or (engine.pod_id not in (None, pod.pk) and engine.state != "CREATING"):
        return EngineProcess(ProcessState.PENDING)
    address = pod.endpoint["address"] or pod.address or pod.node.address
    return EngineProcess(ProcessState.RUNNING, f"http://{address}:{pod.endpoint['port']}", pod.pk)


def _end_message(workload: Workload) -> str:
    return f"The workload {workload.name} is {workload.phase}: {workload.message or workload.reason}"
