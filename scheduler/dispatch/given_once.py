"""Record network assignments of a pod once per attempt, before it starts."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from berth.db.lease import fenced
from projects.models import Pod
from scheduler.points import outside_transactions, point
from scheduler.post import Post

Found = Mapping[str, Any] | None


def give_once(
    column: Literal["endpoint", "ports"], pods: Iterable[Pod], find: Callable[[Pod], Found], post: Post
) -> None:
    """To those that have none yet: an attempt keeps its own for ever, another attempt gets another.

    `find`: None where nothing is to be had now.
    """
    outside_transactions()
    lacking = [pod for pod in pods if getattr(pod, column) is None]
    found = {pod.pk: place for pod in lacking if (place := find(pod)) is not None}
    if not found:
        return
    without = Pod.objects.filter(pk__in=found, **{f"{column}__isnull": True})
    with fenced(post.held):
        for pod in without.select_for_update().order_by("pk"):
            Pod.objects.filter(pk=pod.pk).update(**{column: found[pod.pk]})
    point("dispatch.given")
    given = dict(Pod.objects.filter(pk__in=found).values_list("pk", column))
    for pod in lacking:
        setattr(pod, column, given.get(pod.pk))
