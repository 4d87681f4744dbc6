"""Browser test data: an organization with five projects, two pools and pending workloads."""

import itertools
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.utils import timezone

from pools.models import Node, NodePool
from projects.models import ApiToken, Department, Membership, Phase, Project, Workload, WorkloadArray
from projects.services import quotas, tenants
from projects.services.people import members, tokens
from scheduler.models import Allocation, Eviction
from tests import factories as make
from tests.browser.data.decisions import create_decisions
from tests.browser.data.pools.booting import create_booting_node
from tests.browser.data.pools.measurements import create_measurements
from tests.browser.data.pools.scaling_history import create_scaling_history
from tests.browser.data.pools.usage_history import create_usage_history
from tests.browser.data.project_contents import create_project_contents
from tests.browser.data.requests import acting
from tests.browser.data.workloads.array import create_array
from tests.browser.data.workloads.complete_documents import complete_documents
from tests.browser.data.workloads.ended_pods import (
    create_ended_allocations,
    create_ended_events,
    create_ended_pods,
)
from tests.browser.data.workloads.evaluation import evaluate, reserve_booting_node

PASSWORD = "correct horse battery"
# The server that checks the password does not use the faster hasher of the test settings.
STORED = PBKDF2PasswordHasher().encode(PASSWORD, "a-scene-of-tests", iterations=1000)


RUNTIME_HOURS = {  # declared runtimes, from which start times are predicted
    "diffusion-xl": 6, "segment-eval": 3, "whisper-tune": 3, "ctr-nightly": 1, "embedding-refresh": 2,
}  # fmt: skip


@dataclass
class Scene:
    people: dict[str, User] = field(default_factory=dict)
    workloads: dict[str, Workload] = field(default_factory=dict)
    projects: dict[str, Project] = field(default_factory=dict)
    departments: dict[str, Department] = field(default_factory=dict)
    pools: dict[str, NodePool] = field(default_factory=dict)
    eviction: Eviction | None = None
    array: WorkloadArray | None = None
    slots: "itertools.chain[tuple[Node, int]]" = field(default_factory=itertools.chain)


def people_only() -> Scene:
    scene = Scene()
    scene.people["ada"] = User.objects.create_superuser("ada", "ada@example.org", PASSWORD)
    return scene


def busy() -> Scene:
    scene = people_only()
    make.create_scheduler_lease()
    _tenants(scene)
    _machines(scene)
    _quotas(scene)
    _running(scene)
    _pending(scene)
    _ended(scene)
    create_ended_pods(scene)
    create_ended_events(scene)
    _history(scene)
    create_decisions(scene)
    create_usage_history(scene)
    create_ended_allocations(scene)
    create_project_contents(scene)
    create_measurements()
    reserve_booting_node(scene)
    scene.array = create_array(scene.projects["vision"], acting(scene.people["dave"]))
    complete_documents()
    evaluate()
    scene.slots = itertools.chain()  # clear the generator, which is exhausted and cannot be copied
    return scene


def _tenants(scene: Scene) -> None:
    ada = acting(scene.people["ada"])
    for name, title, projects in (
        ("research", "Research", ("vision", "speech", "robotics")),
        ("product", "Product engineering", ("ads", "search")),
    ):
        department = tenants.create_department(actor=ada, name=name, title=title)
        scene.departments[name] = department
        for project in projects:
            made = tenants.create_project(actor=ada, department=department, name=project)
            scene.projects[project] = made
    Project.objects.update(created_at=make.ago(hours=1000))
    for name, role, scope in (
        ("bert", "department_admin", scene.departments["research"]),
        ("carol", "project_admin", scene.projects["vision"]),
        ("dave", "member", scene.projects["vision"]),
        ("erin", "viewer", scene.projects["vision"]),
        ("grace", "member", scene.projects["ads"]),
        ("hiro", "member", scene.projects["speech"]),
    ):
        person = User.objects.create(
            username=name, email=f"{name}@example.org", password=STORED,
            last_login=None if name == "erin" else make.ago(hours=3 * len(scene.people)),
        )  # fmt: skip
        scene.people[name] = person
        members.grant(actor=ada, user=person, role=role, scope=scope)
    Membership.objects.create(user=scene.people["ada"], role="platform_admin")
    Membership.objects.update(created_at=make.ago(hours=900))
    User.objects.update(date_joined=make.ago(hours=1000))
    User.objects.filter(username="ada").update(last_login=make.ago(minutes=20))
    _tokens(scene)


def _tokens(scene: Scene) -> None:
    for user, name, scopes, days in (
        ("ada", "laptop", ["read", "write"], 21), ("ada", "capacity-report", ["read"], 80),
        ("dave", "ci", ["read", "write"], 54), ("carol", "nightly-sweeps", ["admin", "read", "write"], 12),
    ):  # fmt: skip
        actor, expiry = acting(scene.people[user]), timezone.now() + timedelta(days=days)
        token, _ = tokens.issue(actor=actor, name=name, scopes=scopes, expires_at=expiry)
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=make.ago(minutes=days * 2))


def _machines(scene: Scene) -> None:
    price = Decimal("2.49")
    train = make.pool(
        "train",
        gpus=8,
        nodes_min=3,
        nodes_max=4,
        nodes_desired=4,
        gpu_model="H100",
        memory_mib=1024 * 1024,
        price_per_gpu_hour=price,
    )
    local = make.pool("local", gpus=2, nodes_max=4, nodes_desired=1, gpu_model="L4")
    NodePool.objects.update(ticked_at=make.ago(seconds=5), created_at=make.ago(hours=30))
    train.refresh_from_db()
    scene.pools = {"train": train, "local": local}
    nodes = [
        make.node(train, since=make.ago(hours=29 - n), created_at=make.ago(hours=29.1 - n)) for n in range(3)
    ]
    for number, each in enumerate(nodes):
        make.scaling(train, "ready", "ready after 240 s", at=make.ago(hours=29 - number), node=each)
    create_scaling_history(train)
    create_booting_node(train)
    small = [make.node(local, since=make.ago(hours=28), created_at=make.ago(hours=28.1))]
    make.scaling(local, "ready", "ready after 20 s", at=make.ago(hours=28), node=small[0])
    scene.slots = itertools.chain(
        ((n, d) for n in nodes for d in range(8)), ((n, d) for n in small for d in range(2))
    )
    queued = "8 GPU slots queued: 1 node in addition to 3 ready"
    make.scaling(train, "autoscale", queued, at=make.ago(seconds=50), before=3, after=4)
    make.scaling(train, "provision", "1 node provided", at=make.ago(seconds=49), after=4)


def _quotas(scene: Scene) -> None:
    ada, bert = acting(scene.people["ada"]), acting(scene.people["bert"])
    train, local = scene.pools["train"], scene.pools["local"]
    for name, gpus in (("research", 20), ("product", 12)):
        quotas.set_quota(actor=ada, owner=scene.departments[name], pool=train, values={"gpu": gpus})
        quotas.set_quota(actor=ada, owner=scene.departments[name], pool=local, values={"gpu": 4})
    project_quotas = {"vision": (8, 2.0, 16), "speech": (8, 1.0, None), "robotics": (4, 1.0, None)}
    for name, (gpus, weight, limit) in project_quotas.items():
        values = {"gpu": gpus, "weight": weight, "limit": {"gpu": limit}}
        quotas.set_quota(actor=bert, owner=scene.projects[name], pool=train, values=values)
    for name, gpus in (("ads", 8), ("search", 4)):
        quotas.set_quota(actor=ada, owner=scene.projects[name], pool=train, values={"gpu": gpus})


def _run(
    scene: Scene, project: str, name: str, gpus: int, *, minutes: int, by: str, **columns: Any
) -> Workload:
    started = make.ago(minutes=minutes)
    workload = make.workload(
        scene.projects[project],
        name,
        replicas=gpus,
        phase=Phase.RUNNING,
        by=scene.people[by],
        pools=["train"],
        started_at=started,
        first_started_at=started,
        since=started,
        submitted_at=started - timedelta(minutes=3),
        run=1,
        message=f"{gpus} of {gpus} pods running.",
        max_runtime=RUNTIME_HOURS[name] * 3600,
        **columns,
    )
    for _ in range(gpus):
        node, device = next(scene.slots)
        make.place(workload, node, [device])
    Allocation.objects.filter(pod__workload=workload).update(bound_at=started)
    scene.workloads[name] = workload
    make.event(workload, "submitted", f"Submitted by {by}.", at=workload.submitted_at, actor=by)
    make.event(workload, "starting", f"Placed on {gpus} devices of train.", at=started - timedelta(seconds=1))
    make.event(workload, "running", "All pods run.", at=started)
    return workload


def _running(scene: Scene) -> None:
    labels = {"team": "images", "stage": "pretrain"}
    saved = {"last_checkpoint_at": make.ago(minutes=1)}
    _run(scene, "vision", "diffusion-xl", 8, minutes=214, by="dave", labels=labels, **saved)
    elastic = _run(
        scene,
        "vision",
        "segment-eval",
        4,
        minutes=110,
        by="carol",
        kind="elastic",
        priority=40,
        backoff_until=make.ago(minutes=-10),  # the workload was scaled down and does not scale up again yet
    )
    elastic.roles.create(name="worker", position=0, min=4, max=7, gpu_devices=1, gpu_milli=1000)
    _run(scene, "speech", "whisper-tune", 4, minutes=97, by="hiro")
    _run(scene, "ads", "ctr-nightly", 4, minutes=12, by="grace", priority=125, preemptible=False)
    _run(scene, "ads", "embedding-refresh", 2, minutes=66, by="grace")
    node, device = next(scene.slots)
    for name, milli in (("grasp-notebook", 500), ("sim-debug", 250)):
        started = make.ago(minutes=18)
        shared = make.workload(
            scene.projects["robotics"],
            name,
            gpus=milli / 1000,
            phase=Phase.RUNNING,
            kind="interactive",
            by=scene.people["bert"],
            pools=["train"],
            started_at=started,
            first_started_at=started,
            since=started,
            submitted_at=started - timedelta(seconds=4),
            run=1,
            message="1 of 1 pods running.",
        )
        make.place(shared, node, [device], milli=milli)
        Allocation.objects.filter(pod__workload=shared).update(bound_at=started)
        make.event(shared, "submitted", "Submitted by bert.", at=shared.submitted_at, actor="bert")
        make.event(shared, "running", "All pods run.", at=started)
        scene.workloads[name] = shared


def _pending(scene: Scene) -> None:
    pending = make.workload(
        scene.projects["speech"],
        "asr-pretrain",
        replicas=8,
        by=scene.people["hiro"],
        pools=["train"],
        priority=80,
        submitted_at=make.ago(minutes=6),
        since=make.ago(minutes=6),
        pending_reasons=make.reasons(("WouldExceedFairShare", 5.9), ("WaitingForCapacity", 3)),
    )
    make.event(pending, "submitted", "Submitted by hiro.", at=pending.submitted_at, actor="hiro")
    scene.workloads["asr-pretrain"] = pending
    for project, name, by, gpus, hours, priority, minutes in (
        ("vision", "ablation-7", "dave", 2, 4, 40, 20), ("vision", "ablation-8", "dave", 2, 4, 40, 20),
        ("robotics", "policy-sweep", "bert", 6, 8, 50, 26),
    ):  # fmt: skip
        scene.workloads[name] = make.workload(
            scene.projects[project],
            name,
            replicas=gpus,
            by=scene.people[by],
            pools=["train"],
            priority=priority,
            max_runtime=hours * 3600,
            submitted_at=make.ago(minutes=minutes),
            since=make.ago(minutes=minutes),
            pending_reasons=make.reasons(("WouldExceedFairShare", minutes)),
        )
        submitted = scene.workloads[name].submitted_at
        make.event(scene.workloads[name], "submitted", f"Submitted by {by}.", at=submitted, actor=by)
    paused = scene.workloads["paused-run"] = make.workload(
        scene.projects["vision"],
        "paused-run",
        replicas=2,
        pools=["train"],
        phase=Phase.SUSPENDED,
        by=scene.people["carol"],
        reason="Suspended",
        message="Suspended by carol.",
    )
    make.event(paused, "submitted", "Submitted by carol.", at=paused.submitted_at, actor="carol")
    make.event(paused, "suspended", "Suspended by carol.", at=paused.since, actor="carol")


def _ended(scene: Scene) -> None:
    for project, name, by, phase, message, code in (
        ("vision", "vit-baseline", "dave", Phase.COMPLETED, "All pods succeeded.", 0),
        ("vision", "vit-large-lr3", "dave", Phase.FAILED, "Pod worker-1 ended with exit code 1.", 1),
        ("ads", "ranker-test", "grace", Phase.CANCELLED, "Cancelled by grace.", None),
        ("speech", "tts-smoke", "hiro", Phase.COMPLETED, "All pods succeeded.", 0),
    ):
        # The first run of vit-baseline was evicted.
        submitted_at = make.ago(hours=4 if name == "vit-baseline" else 3.05)
        started_at, ended_at = make.ago(hours=3), make.ago(hours=2)
        scene.workloads[name] = make.workload(
            scene.projects[project], name, replicas=2, by=scene.people[by], pools=["train"], phase=phase,
            message=message, exit_code=code, started_at=started_at, first_started_at=started_at,
            submitted_at=submitted_at, ended_at=ended_at, since=ended_at, run=1,
        )  # fmt: skip


def _history(scene: Scene) -> None:
    train = scene.pools["train"]
    until = make.ago(minutes=-2)
    preempted = scene.workloads["vit-baseline"]
    preempted.run, preempted.preemptions = 2, 1
    preempted.first_started_at, preempted.priority = make.ago(hours=3.8), 40
    preempted.save()
    preempted.pods.update(run=2)
    victim = make.workload(
        scene.projects["vision"],
        "detr-long",
        replicas=4,
        by=scene.people["dave"],
        pools=["train"],
        priority=40,  # as that of segment-eval, which would be preempted otherwise
        pending_reasons=make.reasons(("Backoff", 11)),
        preemptions=1,
        run=1,
        first_started_at=make.ago(minutes=80),
        started_at=make.ago(minutes=80),
        backoff_until=until,
        last_checkpoint_at=make.ago(minutes=24),  # 12 min before the eviction
        submitted_at=make.ago(minutes=85),
        since=make.ago(minutes=11),
    )
    scene.workloads["detr-long"] = victim
    make.event(victim, "submitted", "Submitted by dave.", at=make.ago(minutes=85), actor="dave")
    placed = "Placed on 4 devices of train."
    make.event(victim, "starting", placed, at=make.ago(minutes=80, seconds=1))
    make.event(victim, "running", "All pods run.", at=make.ago(minutes=80))
    rule = "ads stays within its quota of 8 GPUs, and vision was over its own"
    message = f"Reclaimed for a 4-GPU workload in project ads: {rule}"
    make.event(victim, "stopping", message, at=make.ago(minutes=12))
    make.event(victim, "pending", "Requeued after 1 eviction.", at=make.ago(minutes=11))
    make.eviction(
        scene.workloads["vit-baseline"],
        scene.workloads["diffusion-xl"],
        train,
        kind="preempt",
        at=make.ago(hours=3.6),
        cycle=640,
        lost_gpu_seconds=640,
        rule="in vision, priority 50 preempts priority 40",
    )
    make.eviction(
        scene.workloads["segment-eval"],
        scene.workloads["whisper-tune"],
        train,
        kind="shrink",
        at=make.ago(minutes=97),
        cycle=722,
        entire_workload=False,
        gpu_milli=2000,
        lost_gpu_seconds=0,
        rule="segment-eval is scaled down so that a pending gang can start with its minimum",
    )
    no_usage = {"usage": 0.0}  # the pages of fair shares show no decayed usage either
    scene.eviction = make.eviction(
        victim,
        scene.workloads["ctr-nightly"],
        train,
        at=make.ago(minutes=12),
        cycle=803,
        lost_gpu_seconds=2880,
        rule=rule,
        pods=[{"role": "worker", "index": index} for index in range(4)],
        numbers={
            "sizes": {"victim": 4000, "preemptor": 4000},
            "victim": [
                make.eviction_side("vision", 8, 12, 16, 12) | no_usage,
                make.eviction_side("research", 20, 22, 21.5, 17.5) | no_usage,
            ],
            "preemptor": [
                make.eviction_side("ads", 8, 6, 2, 6) | no_usage,
                make.eviction_side("product", 12, 6, 2, 6) | no_usage,
            ],
            "rejected": ["Waiting for capacity: no node had more than 2 free GPUs; the gang needs 4 on one."],
        },
    )
