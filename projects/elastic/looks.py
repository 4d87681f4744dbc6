"""Probe engines concurrently, without touching rows."""

import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from berth.db.crash_points import outside_transactions
from projects.elastic.ports import Ports
from projects.elastic.view import View
from projects.engine.engines import Place
from projects.models import Engine
from projects.serving.base import EngineAdapter, Identity, RouterClient, ServingError, Trouble, disagreements

T = TypeVar("T")

AT_ONCE = 8
LOOK_EVERY = timedelta(seconds=5)  # at engines that serve; those on their way are looked at in every pass
RETRY_EVERY = timedelta(seconds=2)  # after a failed connection attempt
RESTLESS = ("CONNECTING", "HEALTH_CHECKING", "WEIGHT_SYNCING", "READY", "DRAINING")
NO_CONNECTION = (Trouble.UNREACHABLE, Trouble.TIMEOUT)
FOR_GOOD = (Trouble.FORBIDDEN, Trouble.REFUSED, Trouble.UNREADABLE, Trouble.UNSUPPORTED)


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look at an engine.

    `healthy` is None where it was not asked, `refusal` why the engine cannot join this service, `unreachable`
    whether no connection came about or no answer arrived in time.
    """

    healthy: bool | None = None
    connected: bool | None = None
    refusal: str = ""
    running: int | None = None
    weight_version: str | None = None
    trouble: str = ""
    unreachable: bool = False


NOTHING = Look()


@dataclass(frozen=True, slots=True)
class Asking:
    """What a look needs, apart from rows."""

    kind: str
    ports: Ports
    router: RouterClient | None
    model: str
    seed: Identity | None
    drain_timeout: float
    now: datetime
    syncs: bool = False

    def adapter(self, engine: Engine) -> EngineAdapter:
        return self.ports.engines(self.kind, engine.origin != "external")


def look(view: View, ports: Ports, router: RouterClient | None, now: datetime) -> dict[uuid.UUID, Look]:
    outside_transactions()
    due = [engine for engine in view.engines if _is_due(engine, view, now)]
    if not due:
        return {}
    seed = _seed_identity(view, ports) if any(engine.state == "CONNECTING" for engine in due) else None
    told = view.spec
    asking = Asking(
        told.engine, ports, router, view.service.model_name, seed, told.scale_in_drain_timeout, now,
        told.weight_sync,
    )  # fmt: skip
    if len(due) == 1:
        return {due[0].pk: _one(due[0], asking)}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip([e.pk for e in due], pool.map(lambda e: _one(e, asking), due), strict=True))


def _is_due(engine: Engine, view: View, now: datetime) -> bool:
    if view.standings[engine.pk].place is not Place.UP or not engine.url:
        return False
    if engine.state in RESTLESS:
        return not engine.connection_failures or _rested(engine, RETRY_EVERY, now)
    return engine.state == "ACTIVE" and _rested(engine, LOOK_EVERY, now)


def _rested(engine: Engine, pause: timedelta, now: datetime) -> bool:
    """True once `pause` has passed since the last look, or the clock was set back."""
    return engine.looked_at is None or not engine.looked_at <= now < engine.looked_at + pause


def _one(engine: Engine, asking: Asking) -> Look:
    if engine.state == "CONNECTING":
        return _greet(engine.url, asking.adapter(engine), asking)
    if engine.state == "DRAINING":
        return _drain(engine, asking)
    adapter = asking.adapter(engine)
    try:
        adapter.health(engine.url)
    except ServingError as error:
        return Look(healthy=False, trouble=str(error), unreachable=error.trouble in NO_CONNECTION)
    version = None
    if asking.syncs and (engine.origin == "initial" or engine.state == "WEIGHT_SYNCING"):
        version = _quietly(lambda: adapter.weight_version(engine.url))
    return Look(healthy=True, weight_version=version)


def _greet(url: str, adapter: EngineAdapter, asking: Asking) -> Look:
    """Only who says that it serves this model, with the parameters of the others, is let in."""
    try:
        said = adapter.identity(url)
    except ServingError as error:
        return Look(
            connected=False if error.trouble in FOR_GOOD else None, refusal=str(error), trouble=str(error),
            unreachable=error.trouble in NO_CONNECTION,
        )  # fmt: skip
    if asking.seed is not None and (unlike := disagreements(asking.seed, said)):
        return Look(connected=False, refusal=f"{url} is unlike the initial engines: {', '.join(unlike)}.")
    if asking.seed is None and asking.model not in ("default", said.model):
        return Look(connected=False, refusal=f"{url} serves {said.model}, not {asking.model}.")
    return Look(connected=True, weight_version=said.weight_version)


def _drain(engine: Engine, asking: Asking) -> Look:
    since, adapter = engine.isolated_at, asking.adapter(engine)
    if since is not None and (asking.now - since).total_seconds() >= asking.drain_timeout:
        _quietly(lambda: adapter.abort(engine.url))
    told = [_quietly(lambda: adapter.running_requests(engine.url))]
    if asking.router is not None:
        router = asking.router
        told.append(_quietly(lambda: router.running_requests(engine.url)))
    known = [count for count in told if count is not None]
    return Look(running=max(known) if known else None)


def _seed_identity(view: View, ports: Ports) -> Identity | None:
    adapter = ports.engines(view.spec.engine, True)
    for engine in healthy_initial(view.engines):
        found = _quietly(lambda url=engine.url: adapter.identity(url))  # type: ignore[misc]
        if found is not None:
            return found
    return None


def healthy_initial(engines: Iterable[Engine]) -> list[Engine]:
    return [e for e in engines if e.origin == "initial" and e.state == "ACTIVE" and e.is_healthy]


def _quietly(ask: Callable[[], T]) -> T | None:
    """What an engine does not say is unknown, and no more."""
    try:
        return ask()
    except ServingError:
        return None
