"""One object of each kind and a REST client for each user, shared by the tests of a file."""

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from pools.models import Machine, Node, QuotaGroup
from pools.services import issue_join_token
from pools.services.secrets import SecretContent, set_pool_secret
from projects.actor import ALL_SCOPES
from projects.models import ApiToken, Delivery, Membership, Quota, QuotaChange
from projects.services import arrays, quotas, schedules, sessions, workloads
from projects.services.notifications import subscriptions
from projects.services.people import tokens
from projects.services.quotas import budgets
from projects.services.secrets import set_personal_secret, set_project_secret
from projects.services.workloads import templates
from scheduler.models import Cycle
from tests.api.conftest import Caller
from tests.api.isolation_matrix import TEMPLATE, USERS
from tests.cast import Cast, make_cast, training
from tests.services.stage import document


@dataclass(frozen=True)
class Scene:
    cast: Cast
    named: dict[str, object]
    callers: dict[str, Caller]


def create_scene() -> Scene:
    cast = make_cast()
    return Scene(cast, create_one_of_each(cast), {name: caller_for(cast, name) for name in USERS})


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
    delivery = Delivery.objects.create(
        kind="failed", subscription_id=subscription.pk, to=subscription.to, channel="mail", content={},
        state="failed", attempts=8, next_attempt_at=timezone.now(), ended_at=timezone.now(),
    )  # fmt: skip
    for name, actor, project in (
        ("nightly", cast.dave, cast.vision),
        ("carols", cast.carol, cast.vision),
        ("theirs", cast.grace, cast.ads),
    ):
        templates.set_template(actor=actor, project=project, name=name, text=TEMPLATE["text"])
    for name, actor, project in (
        ("weekly", cast.dave, cast.vision),
        ("carols", cast.carol, cast.vision),
        ("others", cast.grace, cast.ads),
    ):
        values = schedules.ScheduleValues("0 4 * * 1", text=TEMPLATE["text"])
        schedules.set_schedule(actor=actor, project=project, name=name, values=values)
    value = SecretContent("v")
    set_personal_secret(actor=cast.dave, name="token", content=value, at=timezone.now())
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
    metal.quota_group = QuotaGroup.objects.create(name="pair")
    metal.save()
    join_token, _ = issue_join_token(
        actor=cast.alice, pool=metal, lifetime=timedelta(hours=1), at=timezone.now()
    )
    return {
        "session": session.pk, "array": sweep.pk,
        "workload": by_name["train"].pk, "ended": by_name["ended"].pk, "carols": by_name["carols"].pk,
        "open": join_token.pk, "token": token.pk, "member": member.pk, "eviction": 0,
        "subscription": subscription.pk, "delivery": delivery.pk, "change": QuotaChange.objects.get().pk,
        "cycle": Cycle.objects.create(epoch=1, trigger="tick").pk,
    }  # fmt: skip
