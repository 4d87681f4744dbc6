"""Validate scale requests and select the engines to remove."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, shown
from berth.core.spec import parse_workload
from berth.core.spec.service import ServiceSpec
from projects.engine import scaling
from projects.models import Engine, ScaleRequest, Service, Workload

ENGINES_MAX = 10_000
TIMEOUT_MAX = 7 * 86_400.0


class BadScaling(Invalid):
    code: ClassVar[str] = "bad-parameters"
    status: ClassVar[int] = 400
    title: ClassVar[str] = "These parameters are not allowed"


class ScalingRuns(Conflict):
    code: ClassVar[str] = "scale-operation-running"
    title: ClassVar[str] = "Another scale operation of this service is running"


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for. `urls` are addresses as `projects.serving.addresses` writes them."""

    num_replicas: int = 0
    urls: tuple[str, ...] = ()
    model_name: str | None = None
    timeout_secs: float | None = None
    force: bool = False
    by_autoscaler: bool = False
    reason: str = ""


def settings_of(workload: Workload) -> ServiceSpec:
    found = parse_workload(workload.spec).service
    assert found is not None, "a service's document has its section"
    return found


def engine_count(service: Service) -> int:
    """Those there are, those on their way, and not those that leave."""
    live = service.engines.filter(ended_at__isnull=True).exclude(state__in=scaling.LEAVING)
    return live.count()


def check_wish(service: Service, wish: Wish) -> None:
    problems = []
    if wish.model_name not in (None, "default", service.model_name):
        problems.append(
            Problem(
                "model_name", "this service has no such model", shown(wish.model_name), service.model_name
            )
        )
    if not 0 <= wish.num_replicas <= ENGINES_MAX:
        problems.append(
            Problem("num_replicas", "out of range", f"{wish.num_replicas}", f"0 to {ENGINES_MAX}")
        )
    if wish.num_replicas == 0 and not wish.urls:
        problems.append(
            Problem("num_replicas", "neither num_replicas nor engine_urls", "0", "one of the two")
        )
    limit = wish.timeout_secs
    if limit is not None and not (math.isfinite(limit) and 0 < limit <= TIMEOUT_MAX):
        problems.append(
            Problem("timeout_secs", "out of range", f"{limit}", f"above 0, at most {TIMEOUT_MAX:.0f}")
        )
    if problems:
        raise BadScaling(problems)


def check_target(service: Service, wish: Wish) -> None:
    if 0 < wish.num_replicas < service.initial_engines:
        raise BadScaling([
            Problem("num_replicas", "below the initial engines, which are never removed",
                    f"{wish.num_replicas}", f"{service.initial_engines} or more")
        ])  # fmt: skip


def chosen(service: Service, wish: Wish) -> list[Engine]:
    """Those that go: the newest first, or exactly those named. Initial engines never do."""
    live = list(service.engines.filter(ended_at__isnull=True).order_by("-number"))
    if wish.num_replicas > 0:
        staying = [engine for engine in live if engine.state not in scaling.LEAVING]
        added = [engine for engine in staying if engine.origin != "initial"]
        return added[: max(0, len(staying) - wish.num_replicas)]
    by_url = {engine.url: engine for engine in live if engine.url}
    problems, found = [], []
    for number, url in enumerate(wish.urls):
        engine = by_url.get(url)
        if engine is not None and engine.origin == "initial":
            problems.append(
                Problem(
                    f"engine_urls[{number}]", "is an initial engine", shown(url), "an engine that was added"
                )
            )
        elif engine is not None:
            found.append(engine)
        elif not service.engines.filter(url=url).exists():
            problems.append(
                Problem(
                    f"engine_urls[{number}]",
                    "is no engine of this service",
                    shown(url),
                    "a url that `engines` lists",
                )
            )
    if problems:
        raise BadScaling(problems)
    return found


def is_same(running: ScaleRequest, direction: str, wish: Wish) -> bool:
    if running.direction != direction or running.status == "ROLLING_BACK":
        return False
    if wish.num_replicas > 0:
        return running.num_replicas == wish.num_replicas and running.force == wish.force
    asked = set(running.engine_urls or running.removed.values_list("url", flat=True))
    return running.num_replicas == 0 and asked == set(wish.urls) and running.force == wish.force


def refuse_if_running(running: ScaleRequest | None) -> None:
    if running is not None:
        said = f"{running.get_direction_display()} {running.pk} is {running.status}: wait for its end"
        raise ScalingRuns(
            f"{said}, or cancel it." if running.direction == "scale_out" else f"{said}.",
            running=str(running.pk),
        )


def new_urls(service: Service, wish: Wish, running: ScaleRequest | None) -> list[str]:
    """Addresses that are neither engines now nor about to be."""
    known = set(service.engines.filter(ended_at__isnull=True).values_list("url", flat=True))
    if running is not None and running.direction == "scale_out":
        known |= set(running.engine_urls)
    return [url for url in dict.fromkeys(wish.urls) if url not in known]


def nothing_to_add(service: Service, wish: Wish, running: ScaleRequest | None, urls: Sequence[str]) -> str:
    if running is not None and (running.direction == "scale_in" or running.status == "ROLLING_BACK"):
        return ""
    if wish.num_replicas > 0:
        count = max(engine_count(service), running.num_replicas if running else 0)
        there = f"There are {count} engines already, counting those on their way."
        return there if count >= wish.num_replicas else ""
    return "" if urls else "All of these engines are there already, or on their way."
