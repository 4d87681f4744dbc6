"""Turn a workload into an inference service."""

from datetime import datetime

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, shown
from berth.core.spec import WorkloadSpec
from berth.core.spec.service_rules import engine_role
from berth.db.wake import wake
from projects.models import Autoscaler, Engine, Service, Workload
from projects.services.inference.autoscalers import checked_settings
from projects.serving.addresses import BadAddress, normalised

WAKES = "services"


def declare(workload: Workload, spec: WorkloadSpec, now: datetime) -> Service | None:
    """In the transaction that stores the workload: its first engines are known before they run."""
    role = engine_role(spec)
    if spec.service is None or role is None:
        return None
    told = spec.service
    service = Service.objects.create(
        workload=workload, model_name=told.model_name, role=role.name, initial_engines=role.minimum,
        next_number=role.minimum, created_at=now,
    )  # fmt: skip
    Engine.objects.bulk_create(
        Engine(
            service=service, number=index, index=index, origin="initial", state="CREATING", since=now,
            created_at=now, workload=workload,
        )
        for index in range(role.minimum)
    )  # fmt: skip
    given = told.autoscaler
    Autoscaler.objects.create(
        service=service,
        settings={} if given is None else checked_settings(given, at="service.autoscaler"),
        enabled=given is not None and bool(given.get("enabled", True)),
    )
    wake(WAKES)
    return service


def check(spec: WorkloadSpec) -> None:
    """What the document's words alone do not show. Raises Invalid."""
    if spec.service is None:
        return
    if spec.service.autoscaler is not None:
        checked_settings(spec.service.autoscaler, at="service.autoscaler")
    if spec.service.router is not None and spec.service.router.url is not None:
        try:
            normalised(spec.service.router.url)
        except BadAddress as error:
            given = shown(spec.service.router.url)
            raise Invalid([Problem("service.router.url", "is no address", given, str(error))]) from None


def refuse_while_engines_live(workload: Workload) -> None:
    """Who deletes an ended service must not leave engines that nobody knows of."""
    live = Engine.objects.filter(service__workload=workload)
    if live.filter(ended_at__isnull=True).exists() or live.exclude(router_url="").exists():
        raise Conflict("Its engines are still being removed: try again in a moment.")
