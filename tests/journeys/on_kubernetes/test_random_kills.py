"""Kill Berth's processes, break its connections and delete its pods at random while workloads run.

Afterwards, every workload has done its work exactly once, and nothing of Berth is left in the cluster.
`BERTH_KILLS` is the number of events, and `BERTH_KILLS_SEED` repeats the choices of an earlier run.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, groupby
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
import yaml

from berth.client import Client
from berth.client.errors import ClientError
from berth.client.models.workloads import Workload
from tests.images.registry import Registry
from tests.journeys.installation import Installation, until
from tests.journeys.on_kubernetes.link import Link, link_to
from tests.journeys.on_kubernetes.prod import Prod, create_pool, sign_in_users

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("BERTH_KILLS", "100"))
SEED = int(os.environ.get("BERTH_KILLS_SEED") or random.SystemRandom().randrange(10**6))
UNFINISHED_MAX = 8
ENDED = ("completed", "failed", "cancelled")
PROGRAMS = ("scheduler", "scheduler", "web", "services", "tasks", "preload")
# A step is a line with the pod's name, so that the file shows which pods did the work, and in which order.
WORK = """
trap 'exit 0' TERM
step=0; while read -r line; do step=$((step + 1)); done < "steps-$RANK"
while [ $step -lt STEPS ]; do step=$((step + 1)); hostname >> "steps-$RANK"; sleep 0.2; done
test "$TOKEN" = swordfish
"""
T = TypeVar("T")


@dataclass
class Submitted:
    name: str
    project: str
    replicas: int
    steps: int
    id: str = ""
    may_be_cancelled: bool = False


@dataclass
class Stage:
    """The installation and a record of the events.

    `happened` counts the events by name, and `deleted` contains the workloads that lost a deleted pod.
    """

    berth: Installation
    prod: Prod
    link: Link
    admin: Client
    clients: dict[str, Client]
    random: random.Random
    workloads: list[Submitted] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    deleted: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=count)

    # --- work

    def keep_busy(self) -> None:
        """Submit workloads of both projects, including gangs."""
        while len(self.unfinished()) < UNFINISHED_MAX:
            project = self.random.choice(("vision", "vision", "ads"))
            name = f"{project}-{next(self._numbers)}"
            work = Submitted(name, project, self.random.choice((1, 2, 2)), self.random.randint(5, 60))
            worker = {
                "name": "worker", "replicas": work.replicas, "gpu": 1, "cpu": 0.1, "memory_mib": 32,
                "command": ["sh", "-c", f'touch "steps-$RANK"; {WORK.replace("STEPS", str(work.steps))}'],
            }  # fmt: skip
            document = {
                "name": name, "project": project, "pools": ["prod"], "image": self.prod.image,
                "grace_period_seconds": self.random.choice((1, 5)), "roles": [worker],
                "secrets": [{"name": "token", "env": "TOKEN"}],
            }  # fmt: skip
            submit = partial(self.clients[project].workloads.submit, document, key=f"{SEED}-{name}")
            work.id = str(self.ask(submit).id)
            self.workloads.append(work)

    def phases(self) -> dict[str, str]:
        phases: dict[str, str] = {}
        for project, client in self.clients.items():
            listed = self.ask(partial(_list, client, project))
            phases |= {str(each.id): str(each.phase) for each in listed}
        return phases

    def unfinished(self) -> list[Submitted]:
        phases = self.phases()
        return [work for work in self.workloads if phases[work.id] not in ENDED]

    def ask(self, call: Callable[[], T]) -> T:
        """Return the response to a request. Repeat the request while Berth is down."""
        responses: list[T] = []

        def has_response() -> bool:
            with suppress(ClientError):
                responses.append(call())
            return bool(responses)

        until(has_response)
        return responses[0]

    # --- bad luck

    def inject_fault(self) -> None:
        events: dict[Callable[[], None], int] = {
            self.kill_program: 8, self.kill_everything: 1, self.delete_pod: 4, self.link.cut: 3,
            self.reject_for_a_while: 2, self.stop_responding_for_a_while: 2, self.cancel_workload: 1,
        }  # fmt: skip
        (event,) = self.random.choices(list(events), list(events.values()))
        self.happened[event.__name__] += 1
        event()

    def kill_program(self) -> None:
        name = self.random.choice(PROGRAMS)
        if pid := self.berth.children().get(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_everything(self) -> None:
        assert self.berth.process
        self.berth.process.kill()
        self.berth.process.wait()
        self.berth.start("--demo")

    def delete_pod(self) -> None:
        """Delete a pod as a cluster admin does. Its processes end before its object is gone."""
        pods = [pod for pod in self.prod.objects("pods") if "berth.dev/pool" in labels(pod)]
        if pods:
            metadata = self.random.choice(pods)["metadata"]
            self.deleted.add(metadata["labels"]["berth.dev/workload"])
            self.prod.api.delete(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", 1)

    def reject_for_a_while(self) -> None:
        self.link.reject()
        self.pause(3)
        self.link.restore()

    def stop_responding_for_a_while(self) -> None:
        self.link.stop_responding()
        self.pause(6)
        self.link.restore()

    def cancel_workload(self) -> None:
        if unfinished := self.unfinished():
            work = self.random.choice(unfinished)
            work.may_be_cancelled = True
            with suppress(ClientError):  # the workload may have ended in the meantime
                self.clients[work.project].workloads.cancel(work.id)

    def pause(self, most: float) -> None:
        """Pause for a random time, so that the next event comes at a random point."""
        time.sleep(self.random.uniform(0, most))


def _list(client: Client, project: str) -> list[Workload]:
    return list(client.workloads.list(project=project))


def labels(item: dict[str, Any]) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


@pytest.fixture
def link(prod: Prod) -> Iterator[Link]:
    """Put a proxy that can fail between the pool and the API server."""
    config = yaml.safe_load(prod.config.read_text())
    cluster = config["clusters"][0]["cluster"]
    with link_to(urlsplit(cluster["server"]).port or 443) as link:
        cluster["server"] = f"https://127.0.0.1:{link.port}"
        prod.config.write_text(yaml.safe_dump(config))
        yield link


@pytest.fixture
def stage(berth: Installation, prod: Prod, registry: Registry, link: Link, tmp_path: Path) -> Stage:
    users = sign_in_users(berth, registry, tmp_path)
    create_pool(users.admin, prod)
    clients = {"vision": users.dave.client(), "ads": users.grace.client()}
    return Stage(berth, prod, link, users.admin.client(), clients, random.Random(SEED))


def add_foreign_objects(prod: Prod, namespace: str) -> dict[str, Any]:
    """Add objects of other owners to a namespace that Berth uses. Return them by path."""
    place = f"/api/v1/namespaces/{namespace}"
    container = {
        "name": "c", "image": "berth.test/busybox:1", "imagePullPolicy": "Never", "command": ["sleep", "inf"],
    }  # fmt: skip
    spec = {"nodeName": "node-1", "containers": [container], "terminationGracePeriodSeconds": 0}
    for kind, body in (
        ("pods", {"kind": "Pod", "spec": spec}),
        ("secrets", {"kind": "Secret", "stringData": {"key": "theirs"}}),
        ("configmaps", {"kind": "ConfigMap", "data": {"key": "theirs"}}),
    ):
        prod.api.create(f"{place}/{kind}", {"apiVersion": "v1", "metadata": {"name": "theirs"}, **body})
    paths = [f"{place}/{kind}/theirs" for kind in ("pods", "secrets", "configmaps")]
    return {path: prod.api.get(path) for path in [*paths, "/api/v1/namespaces/default/pods/theirs"]}


def test_no_pods_are_lost_duplicated_or_leaked_after_random_kills(stage: Stage) -> None:
    print(f"BERTH_KILLS_SEED={SEED}")
    prod = stage.prod
    stage.keep_busy()
    until(lambda: [pod for pod in prod.objects("pods") if "-vision" in pod["metadata"]["namespace"]])
    namespace = next(
        each["metadata"]["name"]
        for each in prod.api.list("/api/v1/namespaces")[0]
        if each["metadata"]["name"].endswith("-vision")
    )
    foreign = add_foreign_objects(prod, namespace)

    for _ in range(KILLS):
        stage.pause(3)
        stage.inject_fault()
        stage.keep_busy()
    stage.link.restore()
    until(lambda: not stage.unfinished(), 900, details=lambda: (SEED, stage.unfinished()))
    print(f"{len(stage.workloads)} workloads, {sum(stage.happened.values())} events: {dict(stage.happened)}")

    # Every workload has done its work once, and no pod worked after its replacement had started.
    phases = stage.phases()
    for work in stage.workloads:
        files = [prod.workspaces / work.id / f"steps-{rank}" for rank in range(work.replicas)]
        pods = [file.read_text().split() if file.exists() else [] for file in files]
        for names in pods:
            periods = [name for name, _ in groupby(names)]
            assert len(periods) == len(set(periods)), f"{work.name} ran twice at a time: {periods}"
        if phases[work.id] == "cancelled" and work.may_be_cancelled:
            continue
        row = stage.ask(partial(stage.clients[work.project].workloads.get, work.id))
        assert (row.phase, row.restarts) == ("completed", 0), (work.name, row.phase, row.message)
        assert [len(names) for names in pods] == [work.steps] * work.replicas, work.name

    # Only what others have deleted counts as evicted by the cluster.
    evictions = stage.ask(lambda: list(stage.admin.evictions.list(kind="cluster")))
    assert {str(record.workload) for record in evictions} <= stage.deleted

    # Nothing of Berth is left in the cluster, its records or its database, and what others have is unchanged.
    until(lambda: own_objects(prod) == [], 300, details=lambda: own_objects(prod))
    records = stage.berth.home / "kubernetes" / "pods"
    until(lambda: not list(records.iterdir()), 300, details=lambda: list(records.iterdir()))
    for path, before in foreign.items():
        after = prod.api.get(path)
        for part in ("spec", "data"):
            assert after.get(part) == before.get(part)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert (after.get("status") or {}).get("phase", "Running") == "Running"
    assert [each for each in stage.admin.cycles.health().invariants if not each.ok] == []


def own_objects(prod: Prod) -> list[str]:
    """Return the names of pods and secrets that neither Kubernetes nor other owners created."""
    return [
        f"{kind}/{item['metadata']['name']}"
        for kind in ("pods", "secrets")
        for item in prod.objects(kind)
        if item["metadata"]["name"] != "theirs" and "service-account" not in str(item.get("type"))
    ]
