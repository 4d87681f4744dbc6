"""Here we measure what the web's pages cost in a large organisation: `python -m benchmarks.pages`.

1,000 projects in 20 departments, 10,000 workloads of which 6,000 wait, 300 nodes, a month of usage of 300
projects by the hour, 3,000 evictions, 300 budgets, on a database of its own. Counted are the server's CPU
time and the time until the answer, without a network: the least of five.
"""

import json
import random
import time
from datetime import datetime, timedelta
from typing import Any

from benchmarks.own_database import own_database

DEPARTMENTS, PROJECTS, NODES = 20, 1_000, 300
WORKLOADS, WAITING, HOURS, EVICTIONS, BUDGETS = 10_000, 6_000, 24 * 30, 3_000, 300
TIMES = 5
PAGES = (
    "/", "/workloads", "/workloads?state=all", "/queue?pool=train", "/quotas?pool=train",
    "/fair-share?pool=train", "/usage?span=month", "/usage?span=7d&by=person", "/evictions", "/submit",
    "/activity", "/access", "/services", "/notifications", "/node-pools", "/node-pools/train",
)  # fmt: skip


def main() -> None:
    with own_database("pages"):
        rows = _measured()
    from benchmarks.decide import RESULTS, commit, machine

    answer = {"machine": machine(), "commit": commit(), "rows": rows}
    (RESULTS / "pages.json").write_text(json.dumps(answer, indent=1) + "\n")


def _measured() -> list[dict[str, Any]]:
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    settings.ALLOWED_HOSTS = ["*"]
    ada = User.objects.create_superuser("ada")
    _stage(ada)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    client, rows = Client(), []
    client.force_login(ada)
    for path in PAGES:
        with CaptureQueriesContext(connection) as queries:
            size = len(client.get(path).content)
            count = len(queries)
        wall, cpu = zip(*(_timed(client, path) for _ in range(TIMES)), strict=True)
        row = {
            "page": path, "ms": round(min(wall) * 1000), "cpu_ms": round(min(cpu) * 1000),
            "kib": size // 1024, "queries": count,
        }  # fmt: skip
        rows.append(row)
        print(f"{path:28}" + "".join(f"{row[key]:8} {key}" for key in ("ms", "cpu_ms", "kib", "queries")))
    return rows


def _timed(client: Any, path: str) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    assert client.get(path).status_code == 200, path
    return time.perf_counter() - wall, time.process_time() - cpu


def _stage(ada: Any) -> None:
    from django.utils import timezone

    from projects.models import Department, Project, Quota
    from tests import factories as make

    pool = make.pool("train", gpus=8, nodes_max=500)
    for number in range(NODES):
        make.node(pool, number)
    departments = [Department.objects.create(name=f"d{n}") for n in range(DEPARTMENTS)]
    projects = [
        Project.objects.create(name=f"p{n}", department=departments[n % DEPARTMENTS]) for n in range(PROJECTS)
    ]
    Quota.objects.bulk_create(Quota(project=each, pool=pool, gpu_milli=2000) for each in projects)
    now = timezone.now()
    work = _submit(ada, pool, projects, now)
    _look_back(pool, projects, work, now)


def _submit(ada: Any, pool: Any, projects: list[Any], now: datetime) -> list[Any]:
    from projects.models import Workload
    from scheduler.models import QueueStanding

    chance, work = random.Random(1), []
    for number in range(WORKLOADS):
        waits = number < WAITING
        work.append(
            Workload(
                project=projects[number % PROJECTS], name=f"w{number}", submitted_by=ada, pools=["train"],
                spec={"name": f"w{number}", "roles": []}, gpu_milli_min=1000, pool=None if waits else pool,
                phase="pending" if waits else "completed", reason="OverFairShare" if waits else "",
                explanation={"pool": "train", "position": number + 1, "key": ["k"], "blockers": []}
                if waits else None,
                submitted_at=now - timedelta(hours=24 + chance.random() * 24),
                first_started_at=None if waits else now - timedelta(hours=chance.random() * 24),
                ended_at=None if waits else now,
            )
        )  # fmt: skip
    QueueStanding.objects.bulk_create(
        QueueStanding(
            pool=pool, project=each, share=[2000, 0, 0], allocated=[1000, 0, 0], requested=[5000, 0, 0],
            usage=[0.1, 0, 0], at=now,
        )
        for each in projects
    )  # fmt: skip
    return Workload.objects.bulk_create(work, batch_size=1000)


def _look_back(pool: Any, projects: list[Any], work: list[Any], now: datetime) -> None:
    from projects.acting import Acting
    from projects.services import budgets
    from scheduler.models import Eviction, UsageHour

    hour = now.replace(minute=0, second=0, microsecond=0)
    for back in range(HOURS):
        UsageHour.objects.bulk_create(
            UsageHour(
                hour=hour - timedelta(hours=back), pool_id=pool.pk, pool_name="train", person=f"u{n}",
                department_id=each.department_id, department_name=each.department.name, project_id=each.pk,
                project_name=each.name, gpu_milli_seconds=3_600_000,
            )
            for n, each in enumerate(projects[:BUDGETS])
        )  # fmt: skip
    Eviction.objects.bulk_create(
        Eviction(
            kind="reclaim", pool_id=pool.pk, pool_name="train", workload_id=work[n].pk, workload_name=f"w{n}",
            project_id=work[n].project_id, project_name=work[n].project.name, department_id=1,
            department_name="d0", beneficiary_id=work[-n].pk, beneficiary_name="b", rule="r",
            beneficiary_project_id=projects[n * 7 % PROJECTS].pk,
            beneficiary_project_name=projects[n * 7 % PROJECTS].name, lost_gpu_seconds=10,
        )
        for n in range(EVICTIONS)
    )  # fmt: skip
    for each in projects[:BUDGETS]:
        budgets.set_budget(acting=Acting.system("benchmark"), owner=each, values={"gpu_hours": 100})


if __name__ == "__main__":
    main()
