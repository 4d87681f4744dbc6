"""Record what a deleted workload left on machines."""

from projects.models import Leftover, Pod, Workload


def remember(workload: Workload) -> None:
    """In the transaction that deletes it: afterwards nobody could tell what there is to clear away."""
    pods = list(Pod.objects.filter(workload=workload).order_by("pk").values_list("pk", "node__pool_id"))
    left = [Leftover(pool_id=pool, kind=Leftover.Kind.POD, name=str(pk)) for pk, pool in pods]
    left += [
        Leftover(pool_id=pool, kind=Leftover.Kind.WORKSPACE, name=str(workload.pk))
        for pool in sorted({pool for _, pool in pods})
    ]
    Leftover.objects.bulk_create(left)
