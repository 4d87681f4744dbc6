"""Read a service as a whole: document, engines, request and processes."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Q

from berth.core.spec.service import ServiceSpec
from projects.engine.engines import Place
from projects.engine.scaling import FINAL
from projects.models import Engine, Phase, Pod, PodState, ScaleRequest, Service, Workload
from projects.models.workloads import ENDED_PHASES
from projects.services.inference.rules import settings_of

Pods = Mapping[tuple[uuid.UUID | None, int], Pod]


@dataclass(frozen=True, slots=True)
class Standing:
    """How the process behind an engine stands: where it serves, or why it does not any more."""

    place: Place
    url: str = ""
    pod_id: uuid.UUID | None = None
    trouble: str = ""
    started_once: bool = False


@dataclass(frozen=True, slots=True)
class View:
    service: Service
    spec: ServiceSpec
    engines: Sequence[Engine]
    request: ScaleRequest | None
    standings: Mapping[uuid.UUID, Standing]

    @property
    def has_ended(self) -> bool:
        return self.service.workload.phase in ENDED_PHASES


def view_of(service: Service) -> View:
    """In few statements; `service` comes with its workload and project."""
    rows = service.engines.filter(Q(ended_at__isnull=True) | ~Q(router_url="")).select_related("workload")
    engines = list(rows.order_by("number"))
    for engine in engines:
        engine.service = service
    request = service.requests.exclude(status__in=FINAL).first()
    if request is not None:
        request.service = service
    return View(service, settings_of(service.workload), engines, request, _standings(service, engines))


def _standings(service: Service, engines: Sequence[Engine]) -> dict[uuid.UUID, Standing]:
    owners = {engine.workload_id for engine in engines if engine.workload_id}
    live = (PodState.STARTING, PodState.RUNNING)
    pods = Pod.objects.filter(workload_id__in=owners, role=service.role, state__in=live)
    found: Pods = {(pod.workload_id, pod.index): pod for pod in pods.select_related("node")}
    return {engine.pk: _standing(engine, found) for engine in engines}


def _standing(engine: Engine, pods: Pods) -> Standing:
    if engine.origin == "external":
        leaves = engine.state == "REMOVING"
        return Standing(Place.GONE if leaves else Place.UP, engine.url)
    workload = engine.workload
    if workload is None:
        return Standing(Place.GONE, trouble="Its workload was deleted.", started_once=True)
    if workload.phase in ENDED_PHASES:
        once = workload.first_started_at is not None or engine.url != ""
        return Standing(Place.GONE, trouble=_said(workload), started_once=once)
    pod = pods.get((workload.pk, engine.index))
    if pod is None or pod.state != PodState.RUNNING or workload.phase == Phase.STOPPING:
        return Standing(Place.WAITING)
    if pod.endpoint is None or (engine.pod_id not in (None, pod.pk) and engine.state != "CREATING"):
        return Standing(Place.WAITING)
    address = pod.endpoint["address"] or pod.node.address
    return Standing(Place.UP, f"http://{address}:{pod.endpoint['port']}", pod.pk)


def _said(workload: Workload) -> str:
    return f"Its workload {workload.name} is {workload.phase}: {workload.message or workload.reason}"
