"""Record files that a deleted workload leaves on nodes."""

from projects.models import Leftover, Pod, Workload


def record(workload: Workload) -> None:
    """Record pods and workspaces for later cleanup, in the transaction of the deletion."""
    pods = list(Pod.objects.filter(workload=workload).order_by("pk").values_list("pk", "node__pool_id"))
    rows = [Leftover(pool_id=pool, kind=Leftover.Kind.POD, name=str(pk)) for pk, pool in pods]
    rows += [
        Leftover(pool_id=pool, kind=Leftover.Kind.WORKSPACE, name=str(workload.pk))
        for pool in sorted({pool for _, pool in pods})
    ]
    Leftover.objects.bulk_create(rows)
