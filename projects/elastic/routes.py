"""Register engines with the router and deregister them.

What is about to be told stands in the engine's row first: whoever comes after a crash knows what the router
may have heard. Telling it again does no harm.
"""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from berth.db.crash_points import crash_point, outside_transactions
from projects.elastic.looks import NOTHING
from projects.elastic.moves import facts_of
from projects.elastic.ports import Fence
from projects.elastic.view import View
from projects.engine.engines import may_serve
from projects.models import Engine
from projects.services.inference.moves import note
from projects.serving.base import RouterClient, ServingError, Trouble, Worker

log = logging.getLogger(__name__)

COMPARE_EVERY = timedelta(seconds=5)
GONE_FROM_IT = ("CREATING", "CONNECTING", "HEALTH_CHECKING", "REMOVING", "REMOVED", "FAILED")


def tell(view: View, router: RouterClient | None, fence: Fence, now: datetime) -> bool:
    """One call or two for each engine that is not as it should be there. True: something was told."""
    told = False
    for engine in view.engines:
        told |= (
            _without_router(engine, fence, now) if router is None else _tell(engine, view, router, fence, now)
        )
    return told


def compare(view: View, router: RouterClient | None, fence: Fence) -> None:
    """A router that was started anew has forgotten them: whoever it lacks is registered again."""
    outside_transactions()
    if router is None or not any(engine.is_routed for engine in view.engines):
        return
    try:
        has: Mapping[str, Worker] = {worker.address: worker for worker in router.workers()}
    except ServingError as error:
        log.warning("the router of %s does not say what it has: %s", view.service, error)
        return
    for engine in view.engines:
        if engine.is_routed and engine.isolated_at is None and engine.router_url not in has:
            with fence():
                note(engine, is_routed=False, isolated_at=None)


def is_open(engine: Engine, view: View, now: datetime) -> bool:
    """Whether it is to get requests."""
    current = view.service.weight_version
    is_stale = bool(current) and engine.weight_version != current
    facts = facts_of(engine, view, NOTHING, has_router=True, now=now)
    return engine.is_healthy and may_serve(facts, is_stale=is_stale)


def _without_router(engine: Engine, fence: Fence, now: datetime) -> bool:
    """Nobody has to be told: who drains gets nothing new from the moment that people know."""
    if engine.state != "DRAINING" or engine.isolated_at is not None:
        return False
    with fence():
        note(engine, isolated_at=now)
    return True


def _tell(engine: Engine, view: View, router: RouterClient, fence: Fence, now: datetime) -> bool:
    outside_transactions()
    try:
        if engine.state in GONE_FROM_IT or (engine.router_url and engine.router_url != engine.url):
            return _forget(engine, view, router, fence)
        if is_open(engine, view, now):
            return _let_in(engine, view, router, fence)
        return _isolate(engine, router, fence, now)
    except ServingError as error:
        log.warning("the router of %s was not told of %s: %s", view.service, engine.name, error)
        with fence():
            note(engine, router_message=str(error))
        return False


def _forget(engine: Engine, view: View, router: RouterClient, fence: Fence) -> bool:
    if not engine.router_url:
        return False
    others = [other for other in view.engines if other.pk != engine.pk]
    if not any(other.router_url == engine.router_url for other in others):
        router.unregister(engine.router_url)
    crash_point("services.unregistered")
    with fence():
        note(engine, router_url="", is_routed=False, isolated_at=None, router_message="")
    return True


def _let_in(engine: Engine, view: View, router: RouterClient, fence: Fence) -> bool:
    if engine.is_routed and engine.isolated_at is None:
        return False
    if engine.is_routed:
        router.mark_healthy(engine.url)
        crash_point("services.marked")
    else:
        with fence():
            note(engine, router_url=engine.url)
        crash_point("services.before_register")
        router.register(engine.url, model=view.service.model_name)
        crash_point("services.registered")
    with fence():
        note(engine, is_routed=True, isolated_at=None, router_message="")
    return True


def _isolate(engine: Engine, router: RouterClient, fence: Fence, now: datetime) -> bool:
    if engine.isolated_at is not None:
        return False
    if not engine.router_url:
        return _without_router(engine, fence, now)
    try:
        router.mark_unhealthy(engine.router_url)
    except ServingError as error:
        if error.trouble is not Trouble.REFUSED or _has(router, engine.router_url):
            raise  # else it does not have it, so it sends it nothing either
    crash_point("services.isolated")
    with fence():
        note(engine, isolated_at=now)
    return True


def _has(router: RouterClient, url: str) -> bool:
    return any(worker.address == url for worker in router.workers())
