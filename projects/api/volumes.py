"""REST endpoints for nodes that fetch a pod's volumes from S3.

A node authenticates with the pod's secret while the pod is live, and never receives the object store's
credentials.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from django.db import connection
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Conflict, Invalid, Unauthenticated, Unavailable
from berth.core.problems import Problem, format_value
from berth.server.api.idempotency import repeatable
from berth.server.api.requests import Body, Query, parse_body, parse_query
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import TokenlessView
from pools.buckets.logins import NO_BOTO3, find_login
from pools.engine.volumes import Volume, usable_volumes
from pools.joining import secrets
from projects.models import OutputState, Pod, PodOutputs, PodState
from projects.models.workloads import LIVE_POD_STATES

if TYPE_CHECKING:
    from pools.buckets.bucket import Bucket

GIB, MB = 2**30, 10**6
SIGNED_MAX = 500
CALLS_MAX = 4  # maximum concurrent calls per web process and volume source


class ObjectsQuery(Query):
    after: Annotated[str, Field(max_length=2048, description="`next` of the preceding page.")] = ""


class ObjectResponse(ResponseModel):
    path: str = Field(description="Key without the volume's prefix.")
    size: int = Field(description="In bytes.")
    etag: str
    modified: float = Field(description="Seconds since 1970.")


class ObjectsResponse(ResponseModel):
    objects: list[ObjectResponse]
    next: str = Field(description="Value of `after` for the next page, or empty.")
    size_max: int = Field(description="Maximum size of all objects in bytes.")
    waiting_for: str = Field(
        description="Reason why the objects cannot be listed yet, or empty. Ask again after two seconds."
    )


class ObjectBody(Body):
    path: Annotated[str, Field(min_length=1, max_length=1024)]
    etag: Annotated[str, Field(min_length=1, max_length=255)]


class UrlsBody(Body):
    objects: Annotated[tuple[ObjectBody, ...], Field(strict=False, min_length=1, max_length=SIGNED_MAX)]


class UrlsResponse(ResponseModel):
    urls: list[str] = Field(description="URL of each object, for requests with its ETag in If-Match.")


class PodVolumeObjects(TokenlessView):
    caller = "pod"

    @operation("List the objects of a pod's volume in S3", query=ObjectsQuery, response=ObjectsResponse)
    def get(self, request: Request, pod_id: UUID, name: str) -> Response:
        volume, bucket = _open_volume(request, pod_id, name)
        after = parse_query(request, ObjectsQuery).after
        if not after and (reason := _reason_to_wait(pod_id, volume)):
            return Response(ObjectsResponse(objects=[], next="", size_max=0, waiting_for=reason))
        with _limit_store_calls(volume):
            page = bucket.list_page(after)
        objects = [ObjectResponse.from_row(each) for each in page.objects]
        return Response(
            ObjectsResponse(objects=objects, next=page.next, size_max=volume.max_gib * GIB, waiting_for="")
        )


class PodVolumeUrls(TokenlessView):
    caller = "pod"

    @operation("Sign URLs of objects of a pod's volume in S3", body=UrlsBody, response=UrlsResponse)
    @repeatable
    def post(self, request: Request, pod_id: UUID, name: str) -> Response:
        volume, bucket = _open_volume(request, pod_id, name)
        body = parse_body(request, UrlsBody)
        for number, each in enumerate(body.objects):
            if {"", ".", ".."} & set(each.path.split("/")):  # some object stores resolve "." and ".."
                field = f"objects[{number}].path"
                raise Invalid([Problem(field, "is not a valid object path", format_value(each.path))])
        with _limit_store_calls(volume):
            urls = bucket.sign_urls([(each.path, each.etag) for each in body.objects])
        return Response(UrlsResponse(urls=urls))


def _reason_to_wait(pod_id: UUID, volume: Volume) -> str:
    """Return why the pod must wait for earlier pods' changes to the volume, or "" if it need not wait.

    Raises Unavailable if those changes cannot be stored now.
    """
    rows = PodOutputs.objects.filter(state=OutputState.WAITING, source=volume.cache)
    project = Pod.objects.filter(pk=pod_id).values("workload__project")
    rows = rows.filter(pod__workload__project__in=project).exclude(pod__state__in=LIVE_POD_STATES)
    row = rows.select_related("pod__workload").order_by("-attempts", "pk").first()
    if row is None:
        return ""
    pod = f"the pod {row.pod.role}-{row.pod.index} of {row.pod.workload.name}"
    if row.attempts:
        raise Unavailable(
            f"The changes that {pod} made to the volume cannot be stored right now. {row.message}"
        )
    size = row.progress.get("size", 0) / MB
    changes = f"the changes that {pod} made to the volume {row.volume}"
    return f"waiting until {changes} are stored, {size:,.0f} MB so far"


_calls: Counter[str] = Counter()  # number of calls in progress, by volume source
_lock = Lock()


@contextmanager
def _limit_store_calls(volume: Volume) -> Iterator[None]:
    """Limit the number of concurrent calls to a volume's object store, and release the database connection
    during the call.

    Raises Unavailable if there are too many calls.
    """
    with _lock:
        if _calls[volume.cache] >= CALLS_MAX:
            raise Unavailable("Too many nodes are listing this volume at the same time. Try again later.")
        _calls[volume.cache] += 1
    try:
        if not connection.in_atomic_block:
            connection.close()
        yield
    finally:
        with _lock:
            _calls[volume.cache] -= 1


def _open_volume(request: Request, pod_id: UUID, name: str) -> tuple[Volume, "Bucket"]:
    """Return a live pod's volume and its bucket.

    Raises Unauthenticated, or Conflict if the project may no longer use the volume.
    """
    scheme, _, secret = str(request.headers.get("Authorization", "")).partition(" ")
    if scheme.lower() != "bearer" or secrets.verified_key(secret.strip(), "downloads") != str(pod_id):
        raise Unauthenticated("Send the pod's secret in the header `Authorization: Bearer ...`.")
    live = Pod.objects.select_related("workload__project", "node__pool")
    pod = live.filter(pk=pod_id, state__in=(PodState.STARTING, PodState.RUNNING)).first()
    names = [mount["name"] for mount in pod.workload.spec.get("volumes", ())] if pod else []
    if pod is None or pod.node is None or name not in names:
        raise Unauthenticated("This pod is unknown, has ended, or does not use this volume.")
    pool = pod.node.pool
    volume = usable_volumes(pool.volumes, pod.workload.project.name).get(name)
    if volume is None or not volume.is_synced:
        raise Conflict(
            f"Pool {pool.name} no longer offers this S3 volume to the project. "
            "Ask an admin to restore the volume."
        )
    try:
        from pools.buckets.bucket import Bucket
    except ImportError:
        raise Conflict(f"The volume {NO_BOTO3}") from None
    return volume, Bucket(volume, find_login(pool, volume))
