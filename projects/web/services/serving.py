"""Describe the status of services: how many inference engines are serving, and why others are not."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.core.wording.words import token_to_words
from projects.models import InferenceEngine, Workload
from projects.models.scaling import Origin
from projects.models.workloads import ENDED_PHASES

HEALTH_CHECK_FAILS = "health check fails"


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Status of an engine: title, chip tone and, if the engine is not serving, the reason."""

    title: str
    tone: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class ServingStatus:
    """Status of a service: its chip's title and tone, how many engines serve, and why the other engines do
    not.
    """

    title: str
    tone: str
    count: str  # number of serving engines, such as "1 of 2", or empty if the service has none or has ended
    causes: str = ""
    since: datetime | None = (
        None  # earliest state change of the engines that are not serving; None if unknown or if all serve
    )

    @property
    def text(self) -> str:
        """Sentence such as `1 of 2 serving: 1 starting`."""
        parts = [f"{self.count} serving" if self.count else "", self.causes]
        return ": ".join(filter(None, parts))


def engine_status(engine: InferenceEngine) -> EngineStatus:
    """Return the status of an inference engine: its failing check if there is one, otherwise its state."""
    title = token_to_words(engine.state)
    match engine.state:
        case "ACTIVE" if engine.is_healthy:
            return EngineStatus("Serving", "good")
        case "ACTIVE":
            return EngineStatus("Health check fails", "bad", HEALTH_CHECK_FAILS)
        case "HEALTH_CHECKING" if engine.message or engine.failures:
            return EngineStatus("Health check fails", "warn", HEALTH_CHECK_FAILS)
        case "CONNECTING" if engine.message or engine.connection_failures:
            return EngineStatus("Cannot be reached", "warn", "cannot be reached")
        case "CREATING":
            is_pending = engine.workload is not None and engine.workload.phase == "pending"
            cause = "waiting for capacity" if is_pending else "starting"
            return EngineStatus(cause.capitalize(), "warn" if is_pending else "info", cause)
        case "WEIGHT_SYNCING" if engine.sync == "failed":
            return EngineStatus("Weight sync fails", "warn", "weight sync fails")
        case "DRAINING" | "REMOVING":
            return EngineStatus(title, "warn", "being removed")
        case _:
            return EngineStatus(title, "info", title.lower())


def load_serving_statuses(workloads: Iterable[Workload]) -> dict[UUID, ServingStatus]:
    """Return the status of each service, keyed by the ID of its workload."""
    rows = list(workloads)
    engines = InferenceEngine.objects.filter(service__workload__in=rows, ended_at__isnull=True)
    by_service: dict[UUID, list[InferenceEngine]] = defaultdict(list)
    for engine in engines.select_related("workload", "service") if rows else ():
        by_service[engine.service.workload_id].append(engine)
    return {row.pk: serving_status(row, by_service[row.pk]) for row in rows}


def serving_status(workload: Workload, engines: Sequence[InferenceEngine]) -> ServingStatus:
    """Return the status of a service.

    Each engine is counted once: either as serving, or under the reason why it is not.
    """
    if workload.phase in ENDED_PHASES:
        return ServingStatus(token_to_words(workload.phase), "", "", "The service has ended.")
    statuses = [engine_status(engine) for engine in engines]
    causes = Counter(
        f"{status.cause} (external)" if engine.origin == Origin.EXTERNAL else status.cause
        for engine, status in zip(engines, statuses, strict=True)
        if status.cause
    )
    serving, total = len(statuses) - causes.total(), len(statuses)
    count = f"{serving} of {total}" if total else ""
    if not total:
        reasons = workload.message or "No engines."
    elif len(causes) == 1 and not serving:
        reasons = next(iter(causes))
    else:
        reasons = ", ".join(f"{number} {cause}" for cause, number in causes.items())
    if total and serving == total:
        return ServingStatus("Serving", "good", count)
    since = _not_serving_since(engines)
    if serving:
        return ServingStatus("Partly serving", "warn", count, reasons, since)
    failing = workload.phase == "running" or any(each.cause == HEALTH_CHECK_FAILS for each in statuses)
    return ServingStatus("Not serving", "bad" if failing else "warn", count, reasons, since)


def _not_serving_since(engines: Iterable[InferenceEngine]) -> datetime | None:
    """Return the earliest state change of the engines that are not serving.

    Return None if all engines are serving, or if an active engine failed its health check.
    """
    idle = [engine for engine in engines if engine_status(engine).cause]
    if any(engine.state == "ACTIVE" for engine in idle):
        return None
    return min((engine.since for engine in idle), default=None)
