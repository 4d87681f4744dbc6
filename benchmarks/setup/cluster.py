"""Create a cluster for the load benchmarks, with as many CPUs as all quotas together."""

from dataclasses import dataclass

from benchmarks.setup.processes.server_processes import wait_until

POOL = "bench"


@dataclass(frozen=True)
class Cluster:
    """Dimensions of a cluster. `quota`, `limit` and `node` are numbers of CPUs.

    `reservation_after` is a pool setting in seconds.
    """

    departments: int = 5
    projects_each: int = 6
    quota: int = 20
    limit: int = 120
    node: int = 60
    pods_per_node: int = 200
    reservation_after: int | None = 600

    @property
    def cpus(self) -> int:
        return self.departments * self.projects_each * self.quota


def create_cluster(cluster: Cluster) -> tuple[str, list[str]]:
    """Create the rows of a cluster. Return an admin's token and the project names."""
    from django.contrib.auth.models import User

    from pools.models import NodePool
    from projects.actor import Actor
    from projects.models import Department, Project, Quota
    from projects.services.people import tokens

    nodes = -(-cluster.cpus // cluster.node)
    pool = NodePool.objects.create(
        name=POOL, provider="fake", runtime="fake", nodes_min=nodes, nodes_max=nodes, gpus_per_node=0,
        cpu_milli=cluster.node * 1000, memory_mib=1_000_000, max_pods=cluster.pods_per_node,
        reservation_after=cluster.reservation_after,
    )  # fmt: skip
    departments = [Department.objects.create(name=f"d{i}") for i in range(cluster.departments)]
    projects = Project.objects.bulk_create(
        Project(name=f"p{i:02}", department=departments[i % cluster.departments])
        for i in range(cluster.departments * cluster.projects_each)
    )
    Quota.objects.bulk_create(
        [
            Quota(department=row, pool=pool, cpu_milli=cluster.quota * cluster.projects_each * 1000)
            for row in departments
        ]
        + [
            Quota(
                project=row, pool=pool, cpu_milli=cluster.quota * 1000, limit_cpu_milli=cluster.limit * 1000
            )
            for row in projects
        ]
    )
    admin = Actor.for_user(User.objects.create_superuser("bench"))
    _, secret = tokens.issue(actor=admin, name="bench", scopes=["read", "write", "admin"], expires_at=None)
    return secret, [row.name for row in projects]


def await_nodes() -> None:
    from pools.models import Node, NodePool

    expected = NodePool.objects.get(name=POOL).nodes_min
    wait_until(lambda: Node.objects.filter(state="ready").count() == expected, "the nodes did not boot")
