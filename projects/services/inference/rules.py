"""Validate scale requests and select the inference engines to remove."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec import parse_workload
from berth.core.spec.sections.service import ServiceSpec
from berth.core.wording.words import format_count
from projects.engine import scaling
from projects.models import InferenceEngine, ScaleRequest, Service, Workload

ENGINES_MAX = 10_000
TIMEOUT_MAX = 7 * 86_400.0


class InvalidScaleRequest(Invalid):
    code: ClassVar[str] = "bad-parameters"
    status: ClassVar[int] = 400
    title: ClassVar[str] = "Invalid parameters"


class ScalingInProgress(Conflict):
    code: ClassVar[str] = "scale-operation-running"
    title: ClassVar[str] = "Another scale operation of this service is in progress"


@dataclass(frozen=True, slots=True)
class ScaleParameters:
    """Parameters of a scale request. `urls` are normalized by `projects.serving.addresses`."""

    num_replicas: int = 0
    urls: tuple[str, ...] = ()
    model_name: str | None = None
    timeout_secs: float | None = None
    force: bool = False
    by_autoscaler: bool = False
    reason: str = ""


def service_settings(workload: Workload) -> ServiceSpec:
    service_spec = parse_workload(workload.spec).service
    assert service_spec is not None, "the document of a service has a service section"
    return service_spec


def engine_count(service: Service) -> int:
    """Return the number of live and starting inference engines, excluding those being removed."""
    live = service.engines.filter(ended_at__isnull=True).exclude(state__in=scaling.LEAVING)
    return live.count()


def check_parameters(service: Service, parameters: ScaleParameters) -> None:
    problems = []
    if parameters.model_name not in (None, "default", service.model_name):
        problems.append(
            Problem(
                "model_name",
                "is not this service's model",
                format_value(parameters.model_name),
                service.model_name,
            )
        )
    if not 0 <= parameters.num_replicas <= ENGINES_MAX:
        problems.append(
            Problem("num_replicas", "out of range", f"{parameters.num_replicas}", f"0 to {ENGINES_MAX}")
        )
    if parameters.num_replicas == 0 and not parameters.urls:
        problems.append(
            Problem(
                "num_replicas",
                "num_replicas or engine_urls is required",
                "0",
                "either num_replicas or engine_urls",
            )
        )
    timeout = parameters.timeout_secs
    if timeout is not None and not (math.isfinite(timeout) and 0 < timeout <= TIMEOUT_MAX):
        problems.append(
            Problem("timeout_secs", "out of range", f"{timeout}", f"above 0, at most {TIMEOUT_MAX:.0f}")
        )
    if problems:
        raise InvalidScaleRequest(problems)


def check_target(service: Service, parameters: ScaleParameters) -> None:
    if 0 < parameters.num_replicas < service.initial_engines:
        raise InvalidScaleRequest([
            Problem("num_replicas", "is below the number of initial engines, which are never removed",
                    f"{parameters.num_replicas}", f"{service.initial_engines} or more")
        ])  # fmt: skip


def engines_to_remove(service: Service, parameters: ScaleParameters) -> list[InferenceEngine]:
    """Return the engines to remove: the newest added engines, or exactly those at the requested addresses."""
    live = list(service.engines.filter(ended_at__isnull=True).order_by("-number"))
    if parameters.num_replicas > 0:
        remaining = [engine for engine in live if engine.state not in scaling.LEAVING]
        added = [engine for engine in remaining if engine.origin != "initial"]
        return added[: max(0, len(remaining) - parameters.num_replicas)]
    by_url = {engine.url: engine for engine in live if engine.url}
    problems, selected = [], []
    for number, url in enumerate(parameters.urls):
        engine = by_url.get(url)
        if engine is not None and engine.origin == "initial":
            problems.append(
                Problem(
                    f"engine_urls[{number}]",
                    "is an initial engine",
                    format_value(url),
                    "an engine that was added",
                )
            )
        elif engine is not None:
            selected.append(engine)
        elif not service.engines.filter(url=url).exists():
            problems.append(
                Problem(
                    f"engine_urls[{number}]",
                    "is not an engine of this service",
                    format_value(url),
                    "a URL listed under `engines`",
                )
            )
    if problems:
        raise InvalidScaleRequest(problems)
    return selected


def is_identical_request(running: ScaleRequest, direction: str, parameters: ScaleParameters) -> bool:
    if running.direction != direction or running.status == "ROLLING_BACK":
        return False
    if parameters.num_replicas > 0:
        return running.num_replicas == parameters.num_replicas and running.force == parameters.force
    requested_urls = set(running.engine_urls or running.removed.values_list("url", flat=True))
    return (
        running.num_replicas == 0
        and requested_urls == set(parameters.urls)
        and running.force == parameters.force
    )


def require_no_active_request(running: ScaleRequest | None) -> None:
    if running is not None:
        raise ScalingInProgress(describe_active_request(running), running=str(running.pk))


def describe_active_request(running: ScaleRequest) -> str:
    """Return sentences that describe the active request and say whether the user can cancel it."""
    direction = running.get_direction_display().lower()
    target = f" to {format_count(running.num_replicas, 'engine')}" if running.num_replicas else ""
    may_cancel = running.direction == "scale_out" and running.status != "ROLLING_BACK"
    advice = "Wait until it ends, or cancel it." if may_cancel else "Wait until it ends."
    return f"A {direction}{target} by {running.requested_by} is in progress. {advice}"


def new_urls(service: Service, parameters: ScaleParameters, running: ScaleRequest | None) -> list[str]:
    """Return the requested addresses that no live or starting inference engine uses."""
    current_urls = set(service.engines.filter(ended_at__isnull=True).values_list("url", flat=True))
    if running is not None and running.direction == "scale_out":
        current_urls |= set(running.engine_urls)
    return [url for url in dict.fromkeys(parameters.urls) if url not in current_urls]


def no_change_reason(
    service: Service, parameters: ScaleParameters, running: ScaleRequest | None, urls: Sequence[str]
) -> str:
    if running is not None and (running.direction == "scale_in" or running.status == "ROLLING_BACK"):
        return ""
    if parameters.num_replicas > 0:
        count = max(engine_count(service), running.num_replicas if running else 0)
        message = f"The service already has {count} engines, including those being added."
        return message if count >= parameters.num_replicas else ""
    return "" if urls else "All of these engines are already part of the service or being added."
