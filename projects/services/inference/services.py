"""Create and validate the inference services of workloads."""

from collections.abc import Iterable

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec import WorkloadSpec
from berth.core.spec.rules.services import engine_role
from berth.db.loops.wake import wake
from projects.models import Autoscaler, InferenceEngine, Service, Workload
from projects.services.inference.autoscalers import validate_settings
from projects.serving.addresses import InvalidAddress, normalize

SERVICE_LOOP = "services"


def create_services(workloads: Iterable[tuple[Workload, WorkloadSpec]]) -> None:
    """Store the services of new workloads, with their initial engines and autoscalers, in the caller's
    transaction.
    """
    rows: list[tuple[Service, WorkloadSpec]] = []
    for workload, spec in workloads:
        role = engine_role(spec)
        if spec.service is not None and role is not None:
            service = Service(
                workload=workload, model_name=spec.service.model_name, role=role.name,
                initial_engines=role.minimum, next_number=role.minimum, created_at=workload.submitted_at,
            )  # fmt: skip
            rows.append((service, spec))
    if not rows:
        return
    Service.objects.bulk_create(service for service, _ in rows)
    InferenceEngine.objects.bulk_create(
        InferenceEngine(
            service=service, number=index, index=index, origin="initial", state="CREATING",
            since=service.created_at, created_at=service.created_at, workload=service.workload,
        )
        for service, _ in rows
        for index in range(service.initial_engines)
    )  # fmt: skip
    Autoscaler.objects.bulk_create(_build_autoscaler(service, spec) for service, spec in rows)
    wake(SERVICE_LOOP)


def _build_autoscaler(service: Service, spec: WorkloadSpec) -> Autoscaler:
    settings = spec.service.autoscaler if spec.service is not None else None
    return Autoscaler(
        service=service,
        settings={} if settings is None else validate_settings(settings, at="service.autoscaler"),
        enabled=settings is not None and bool(settings.get("enabled", True)),
    )


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
            raise Invalid(
                [Problem("service.router.url", "is not a valid address", address, str(error))]
            ) from None


def require_no_live_engines(workload: Workload) -> None:
    """Raise Conflict while any engine is live or registered with a router."""
    live = InferenceEngine.objects.filter(service__workload=workload)
    if live.filter(ended_at__isnull=True).exists() or live.exclude(router_url="").exists():
        raise Conflict("The engines of this service are still being removed. Try again in a moment.")
