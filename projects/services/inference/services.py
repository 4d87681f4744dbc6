"""Create and check the inference service of a workload."""

from datetime import datetime

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec import WorkloadSpec
from berth.core.spec.service_rules import engine_role
from berth.db.wake import wake
from projects.models import Autoscaler, InferenceEngine, Service, Workload
from projects.services.inference.autoscalers import validate_settings
from projects.serving.addresses import InvalidAddress, normalize

SERVICE_LOOP = "services"


def create_service(workload: Workload, spec: WorkloadSpec, now: datetime) -> Service | None:
    """Store the service and its initial engines in the transaction that stores the workload."""
    role = engine_role(spec)
    if spec.service is None or role is None:
        return None
    service_spec = spec.service
    service = Service.objects.create(
        workload=workload, model_name=service_spec.model_name, role=role.name, initial_engines=role.minimum,
        next_number=role.minimum, created_at=now,
    )  # fmt: skip
    InferenceEngine.objects.bulk_create(
        InferenceEngine(
            service=service, number=index, index=index, origin="initial", state="CREATING", since=now,
            created_at=now, workload=workload,
        )
        for index in range(role.minimum)
    )  # fmt: skip
    autoscaler = service_spec.autoscaler
    Autoscaler.objects.create(
        service=service,
        settings={} if autoscaler is None else validate_settings(autoscaler, at="service.autoscaler"),
        enabled=autoscaler is not None and bool(autoscaler.get("enabled", True)),
    )
    wake(SERVICE_LOOP)
    return service


def check_service(spec: WorkloadSpec) -> None:
    """Check autoscaler settings and the router address. Raises Invalid."""
    if spec.service is None:
        return
    if spec.service.autoscaler is not None:
        validate_settings(spec.service.autoscaler, at="service.autoscaler")
    if spec.service.router is not None and spec.service.router.url is not None:
        try:
            normalize(spec.service.router.url)
        except InvalidAddress as error:
            address = format_value(spec.service.router.url)
            raise Invalid([Problem("service.router.url", "is not an address", address, str(error))]) from None


def require_no_live_engines(workload: Workload) -> None:
    """Raise Conflict while engines are live or registered with a router, because their rows are needed."""
    live = InferenceEngine.objects.filter(service__workload=workload)
    if live.filter(ended_at__isnull=True).exists() or live.exclude(router_url="").exists():
        raise Conflict("The engines of this service are still being removed. Try again in a moment.")
