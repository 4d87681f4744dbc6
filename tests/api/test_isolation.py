"""Tests for tenant isolation by endpoint and role."""

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from pools.models import Machine, Node
from pools.services import issue_join_token
from pools.services.secrets import SecretContent, set_pool_secret
from projects.actor import ALL_SCOPES
from projects.models import ApiToken, Membership, Quota, QuotaChange
from projects.services import arrays, quotas, sessions, workloads
from projects.services.notifications import subscriptions
from projects.services.people import tokens
from projects.services.quotas import budgets
from projects.services.secrets import set_project_secret
from projects.services.workloads import templates
from scheduler.models import Cycle
from tests.api.conftest import V1, Caller
from tests.api.isolation_matrix import MATRIX, TEMPLATE, USERS
from tests.cast import Cast, make_cast, training
from tests.services.stage import document
from tests.shared_rows import shared_rows

# Lists of tenants' objects, and the rows that each user sees, in the order of USERS
VISIBLE: list[tuple[str, str, Callable[[Any], str], tuple[str, ...]]] = [
    (
        "departments", "names", lambda item: item["name"],
        ("empty product research", "research", "research", "research", "research", "product", ""),
    ),
    (
        "projects", "names", lambda item: item["name"],
        ("ads search speech vision", "speech vision", "vision", "vision", "vision", "ads", ""),
    ),
    (
        "quotas", "owners", lambda item: item["owner"]["name"],
        ("research vision", "research vision", "vision", "vision", "vision", "", ""),
    ),
    (
        "budgets", "owners", lambda item: item["owner"]["name"],
        ("research vision", "research vision", "vision", "vision", "vision", "", ""),
    ),
    (
        "quotas/changes", "owners", lambda item: " ".join(quota["name"] for quota in item["quotas"]),
        ("vision", "vision", "vision", "vision", "vision", "", ""),
    ),
    (
        "templates", "names", lambda item: item["name"],
        ("carols nightly theirs", *("carols nightly",) * 4, "theirs", ""),
    ),
    (
        "workloads", "names", lambda item: item["name"],
        (
            "carols chat ended notebook others scan-0 sweep-0 train",
            *("carols chat ended notebook sweep-0 train",) * 4,
            "others scan-0",
            "",
        ),
    ),
    (
        "events", "subjects", lambda item: item["subject"],
        (
            "carols chat ended notebook others scan-0 sweep-0 train",
            *("carols chat ended notebook sweep-0 train",) * 4,
            "others scan-0",
            "",
        ),
    ),
    ("arrays", "names", lambda item: item["name"], ("scan sweep", *("sweep",) * 4, "scan", "")),
    ("node-pools", "names", lambda item: item["name"], (*("local metal unused",) * 6, "")),
    ("nodes", "names", lambda item: item["name"], (*("local-0",) * 6, "")),
    ("utilization/nodes", "names", lambda item: item["node"], (*("local-0",) * 6, "")),
    (
        "tokens", "names", lambda item: item["name"],
        ("test admin read write",) * 3 + ("secret test admin read write",) + ("test admin read write",) * 3,
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """The cast and one object of each kind. `named` holds their IDs; project objects belong to vision."""

    named: dict[str, object]
    callers: dict[str, Caller]


@pytest.fixture(scope="module")
def scene(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Scene]:
    with shared_rows(django_db_blocker):
        cast = make_cast()
        yield Scene(create_one_of_each(cast), {name: caller_for(cast, name) for name in USERS})


def caller_for(cast: Cast, name: str) -> Caller:
    if not name:
        return Caller()
    label = "test admin read write"
    actor = cast.people[name]
    return Caller(tokens.issue(actor=actor, name=label, scopes=sorted(ALL_SCOPES), expires_at=None)[1])


def create_one_of_each(cast: Cast) -> dict[str, object]:
    workloads.submit(actor=cast.dave, document=document(), project=cast.vision)
    for name, actor, project in (
        ("train", cast.dave, cast.vision),
        ("ended", cast.dave, cast.vision),
        ("carols", cast.carol, cast.vision),
        ("others", cast.grace, cast.ads),
    ):
        workloads.submit(actor=actor, project=project, document=training(name))
    by_name = {workload.name: workload for workload in cast.vision.workloads.all()}
    workloads.cancel(actor=cast.dave, workload=by_name["ended"])
    array = {**training("sweep", project="vision"), "array": {"tasks": 1}}
    sweep = arrays.submit(actor=cast.dave, document=array).array
    arrays.submit(actor=cast.grace, document={**array, "name": "scan", "project": "ads"})
    type(cast.research).objects.create(name="empty")
    type(cast.pool).objects.create(name="unused", nodes_max=1)
    Node.objects.create(
        pool=cast.pool, name="local-0", ordinal=0, state="ready", instance_id="i-0",
        gpus=2, cpu_milli=8000, memory_mib=16384, since=timezone.now(),
    )  # fmt: skip
    Quota.objects.create(department=cast.research, pool=cast.pool, gpu_milli=4000)
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 2})
    for owner in (cast.research, cast.vision):
        budgets.set_budget(actor=cast.alice, owner=owner, values={"gpu_hours": 100})
    wanted = sessions.SessionSettings("http://testserver", "process", 1, 3, 600, "3.11.7", "3.1.2")
    notebook = {"name": "notebook", "project": "vision", "pools": ["local"]}
    session = sessions.open_session(actor=cast.dave, document=notebook, settings=wanted)
    subscription = subscriptions.subscribe(
        actor=cast.carol, scope=cast.vision, to="vision@example.org", events=["failed"]
    )
    for name, actor, project in (
        ("nightly", cast.dave, cast.vision),
        ("carols", cast.carol, cast.vision),
        ("theirs", cast.grace, cast.ads),
    ):
        templates.set_template(actor=actor, project=project, name=name, text=TEMPLATE["text"])
    value = SecretContent("v")
    set_project_secret(actor=cast.carol, project=cast.vision, name="token", content=value, at=timezone.now())
    set_pool_secret(actor=cast.alice, pool=cast.pool, name="token", content=value, at=timezone.now())
    token = ApiToken.objects.create(
        user=cast.dave.user, name="secret", prefix="berth_", digest=uuid.uuid4().hex, scopes=["read"]
    )
    member = Membership.objects.get(user=cast.erin.user)
    metal = type(cast.pool).objects.create(name="metal", nodes_max=1, provider="static")
    Machine.objects.create(
        pool=metal, name="box-1", address="10.1.0.5", cpu_milli=8000, memory_mib=16384,
        joined_at=timezone.now(), last_seen_at=timezone.now(),
    )  # fmt: skip
    join_token, _ = issue_join_token(
        actor=cast.alice, pool=metal, lifetime=timedelta(hours=1), at=timezone.now()
    )
    return {
        "session": session.pk, "array": sweep.pk,
        "workload": by_name["train"].pk, "ended": by_name["ended"].pk, "carols": by_name["carols"].pk,
        "open": join_token.pk, "token": token.pk, "member": member.pk, "eviction": 0,
        "subscription": subscription.pk, "change": QuotaChange.objects.get().pk,
        "cycle": Cycle.objects.create(epoch=1, trigger="tick").pk,
    }  # fmt: skip


@pytest.mark.parametrize("case", MATRIX, ids=lambda case: f"{case[0]} {case[1]}")
def test_each_role_gets_the_status_in_the_matrix(
    scene: Scene, db: None, case: tuple[str, str, Any, Any, str]
) -> None:
    method, path, body, headers, answers = case
    statuses = []
    for name in USERS:
        with transaction.atomic():
            answer = scene.callers[name](method, path.format(**scene.named), body, headers=headers)
            transaction.set_rollback(True)  # undo the request for the next user
        statuses.append(str(answer.status_code))
    assert dict(zip(USERS, statuses, strict=True)) == dict(zip(USERS, answers.split(), strict=True))


@pytest.mark.parametrize(("path", "_what", "name_of", "expected"), VISIBLE, ids=[case[0] for case in VISIBLE])
def test_list_contains_only_visible_objects(
    scene: Scene,
    db: None,
    path: str,
    _what: str,
    name_of: Any,
    expected: Any,
) -> None:
    for user, names in zip(USERS, expected, strict=False):
        items = scene.callers[user].get(path).json()["items"]
        assert " ".join(sorted({name_of(item) for item in items})) == names, user


def test_matrix_covers_every_endpoint() -> None:
    names = r"\{\w+\}|research|speech|vision|local-0|local|metal|box-1|empty|unused|chat|none|nightly|carols"
    names += r"|(?<=ports/)lab|(?<=secrets/)token"
    listed = {(method, re.sub(names, "<>", path.partition("?")[0])) for method, path, *_ in MATRIX}
    machines = {("POST", "node-pools/<>/join"), ("POST", "machines/call"), ("POST", "machines/leave")}
    workers = {("POST", f"workers/{what}") for what in ("hello", "results", "leave")}
    workers |= {("GET", "workers/orders")}  # test_sessions covers their authorization
    public = {("POST", "login"), ("GET", "schema"), ("GET", "docs")} | machines | workers
    assert _endpoints() - listed - public == set()


def _endpoints() -> set[tuple[str, str]]:
    endpoints = set()
    for path, view in _addresses(get_resolver(), ""):
        if path.startswith(V1[1:]) and hasattr(view, "view_class"):
            address = re.sub(r"<[^>]*>", "<>", path.removeprefix(V1[1:]))
            methods = [
                name for name in ("get", "post", "put", "patch", "delete") if hasattr(view.view_class, name)
            ]
            endpoints |= {(method.upper(), address) for method in methods}
    return endpoints


def _addresses(resolver: URLResolver, before: str) -> list[tuple[str, Any]]:
    addresses = []
    for entry in resolver.url_patterns:
        path = before + str(entry.pattern)
        addresses += [(path, entry.callback)] if isinstance(entry, URLPattern) else _addresses(entry, path)
    return addresses
