"""Benchmark web pages in a large organization: `python -m benchmarks.pages`.

A separate database contains 1,000 projects in 20 departments, 10,000 workloads (6,000 of them pending), 300
nodes, a month of hourly usage for 300 projects, 3,000 evictions, 300 budgets and 10,000 cycles with
decisions. The benchmark measures the server's CPU time and the response time without a network, each as the
minimum of five requests.
"""

import json
import random
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from benchmarks.setup.arguments import parser
from benchmarks.setup.own_database import own_database


@dataclass(frozen=True)
class Size:
    departments: int = 20
    projects: int = 1_000
    nodes: int = 300
    workloads: int = 10_000
    waiting: int = 6_000
    hours: int = 24 * 30
    evictions: int = 3_000
    budgets: int = 300
    cycles: int = 10_000
    times: int = 5  # measured requests per page


TINY = Size(departments=2, projects=6, nodes=3, workloads=40, waiting=20, hours=2, evictions=10, budgets=3,
            cycles=5, times=1)  # fmt: skip
PAGES = (
    "/", "/workloads", "/workloads?state=all", "/workloads?state=all&sort=attention",
    "/workloads?state=all&sort=-wait", "/queue?pool=train", "/quotas?pool=train",
    "/fair-share?pool=train", "/usage?span=month", "/usage?span=7d&by=user", "/evictions", "/submit",
    "/activity", "/access", "/services", "/notifications", "/node-pools", "/node-pools/train",
    "/decisions", "/decisions?workload=w99&kind=reclaim", "/search?q=cancel+w99",
)  # fmt: skip


def main() -> None:
    tiny = parser(__doc__).parse_args().tiny
    with own_database("pages"):
        rows = _measure(TINY if tiny else Size())
    if tiny:
        return
    from benchmarks.decide import RESULTS, commit, machine

    answer = {"machine": machine(), "commit": commit(), "rows": rows}
    (RESULTS / "pages.json").write_text(json.dumps(answer, indent=1) + "\n")


def _measure(size: Size) -> list[dict[str, Any]]:
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    settings.ALLOWED_HOSTS = ["*"]
    ada = User.objects.create_superuser("ada")
    _create_organisation(ada, size)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    client, rows = Client(), []
    client.force_login(ada)
    for path in PAGES:
        with CaptureQueriesContext(connection) as queries:
            length = len(client.get(path).content)
            count = len(queries)
        wall, cpu = zip(*(_timed(client, path) for _ in range(size.times)), strict=True)
        row = {
            "page": path, "ms": round(min(wall) * 1000), "cpu_ms": round(min(cpu) * 1000),
            "kib": length // 1024, "queries": count,
        }  # fmt: skip
        rows.append(row)
        print(f"{path:28}" + "".join(f"{row[key]:8} {key}" for key in ("ms", "cpu_ms", "kib", "queries")))
    return rows


def _timed(client: Any, path: str) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    assert client.get(path).status_code == 200, path
    return time.perf_counter() - wall, time.process_time() - cpu


def _create_organisation(ada: Any, size: Size) -> None:
    from django.utils import timezone

    from projects.models import Department, Project, Quota
    from tests import factories as make

    pool = make.pool("train", gpus=8, nodes_max=500)
    for number in range(size.nodes):
        make.node(pool, number)
    departments = [Department.objects.create(name=f"d{n}") for n in range(size.departments)]
    projects = [
        Project.objects.create(name=f"p{n}", department=departments[n % size.departments])
        for n in range(size.projects)
    ]
    Quota.objects.bulk_create(Quota(project=project, pool=pool, gpu_milli=2000) for project in projects)
    now = timezone.now()
    work = _create_workloads(ada, pool, projects, now, size)
    _create_history(pool, projects, work, now, size)


def _create_workloads(ada: Any, pool: Any, projects: list[Any], now: datetime, size: Size) -> list[Any]:
    from projects.models import Workload
    from scheduler.models import QueueStatus

    chance, work = random.Random(1), []
    for number in range(size.workloads):
        waits = number < size.waiting
        work.append(
            Workload(
                project=projects[number % size.projects], name=f"w{number}", submitted_by=ada,
                pools=["train"], spec={"name": f"w{number}", "roles": []}, gpu_milli_min=1000,
                pool=None if waits else pool, phase="pending" if waits else "completed",
                reason="WouldExceedFairShare" if waits else "",
                explanation={"pool": "train", "queue_position": number + 1, "ordering": ["k"], "blockers": []}
                if waits else None,
                submitted_at=now - timedelta(hours=24 + chance.random() * 24),
                first_started_at=None if waits else now - timedelta(hours=chance.random() * 24),
                ended_at=None if waits else now,
            )
        )  # fmt: skip
    QueueStatus.objects.bulk_create(
        QueueStatus(
            pool=pool, project=project, share=[2000, 0, 0], allocated=[1000, 0, 0], requested=[5000, 0, 0],
            usage=[0.1, 0, 0], at=now,
        )
        for project in projects
    )  # fmt: skip
    return Workload.objects.bulk_create(work, batch_size=1000)


def _create_history(pool: Any, projects: list[Any], work: list[Any], now: datetime, size: Size) -> None:
    from projects.actor import Actor
    from projects.services.quotas import budgets
    from scheduler.models import Eviction, UsageHour

    hour = now.replace(minute=0, second=0, microsecond=0)
    for back in range(size.hours):
        UsageHour.objects.bulk_create(
            UsageHour(
                hour=hour - timedelta(hours=back), pool_id=pool.pk, pool_name="train", user_name=f"u{n}",
                department_id=each.department_id, department_name=each.department.name, project_id=each.pk,
                project_name=each.name, gpu_milli_seconds=3_600_000,
            )
            for n, each in enumerate(projects[: size.budgets])
        )  # fmt: skip
    Eviction.objects.bulk_create(
        Eviction(
            kind="reclaim", pool_id=pool.pk, pool_name="train", workload_id=work[n].pk, workload_name=f"w{n}",
            project_id=work[n].project_id, project_name=work[n].project.name, department_id=1,
            department_name="d0", preemptor_id=work[-n].pk, preemptor_name="b", rule="r",
            preemptor_project_id=projects[n * 7 % size.projects].pk,
            preemptor_project_name=projects[n * 7 % size.projects].name, lost_gpu_seconds=10,
        )
        for n in range(size.evictions)
    )  # fmt: skip
    _create_cycles(now, size)
    for project in projects[: size.budgets]:
        budgets.set_budget(actor=Actor.system("benchmark"), owner=project, values={"gpu_hours": 100})


def _create_cycles(now: datetime, size: Size) -> None:
    """Create cycles with five decisions each. The last decision is a reclaim."""
    from scheduler.models import Cycle

    def bundle(number: int, kind: str) -> dict[str, Any]:
        workload = f"p{number % size.projects}/w{number}"
        step = {"do": "place", "workload": workload, "role": "worker", "node": "train-1", "devices": [0]}
        steps = [{**step, "index": index} for index in range(4)]
        return {"kind": kind, "pool": "train", "workload": workload, "message": "", "steps": steps}

    kinds = ("start", "start", "start", "grow", "reclaim")
    Cycle.objects.bulk_create(
        (
            Cycle(
                at=now - timedelta(seconds=5 * number), epoch=1, trigger="workload", bundles=5, applied=5,
                plan={"bundles": [bundle((5 * number + n) % size.workloads, kind)
                                  for n, kind in enumerate(kinds)], "stale": []},
            )
            for number in range(size.cycles, 0, -1)
        ),
        batch_size=1000,
    )  # fmt: skip


if __name__ == "__main__":
    main()
