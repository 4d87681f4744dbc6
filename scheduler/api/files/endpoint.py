"""REST endpoints for the files of failed pods."""

from typing import Annotated
from uuid import UUID

from django.http import StreamingHttpResponse
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec.sections.code import PATH_MAX
from berth.server.api.requests import ListQuery, Query, Word, parse_query
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.transport.streaming import stream_download
from berth.server.api.views import ApiView
from projects import selectors
from projects.code.archive import CONTENT_TYPE as TAR
from projects.services.retained_files import record_read, release_files
from scheduler.api.files.retained_files import find_retained_files, require_files

OCTETS = "application/octet-stream"
PodName = Annotated[Word, Field(description="ROLE-INDEX; by default the first failed pod.")]
RunNumber = Annotated[int, Field(ge=1, le=2**31 - 1, description="By default the latest run with files.")]
PathText = Annotated[
    str, Field(min_length=1, max_length=PATH_MAX, description="File or directory, such as `pod/results`.")
]


class KeptFileResponse(ResponseModel):
    """File of a failed pod. Paths begin with `pod`, `tmp`, `var-tmp` or `workspace`."""

    path: str
    size: int = Field(description="In bytes.")


class PodQuery(Query):
    pod: PodName | None = None
    run: RunNumber | None = None


class RetainedFilesQuery(ListQuery):
    # Allow longer pages than other lists do, because the node reads all directories for each page.
    limit: Annotated[int, Field(ge=1, le=10_000, description="Maximum number of items.")] = 50
    pod: PodName | None = None
    run: RunNumber | None = None
    path: PathText | None = None


class DownloadFilesQuery(PodQuery):
    path: PathText | None = None
    archive: Annotated[bool, Field(description="Return a tar archive even of a single file.")] = False


class WorkloadFiles(ApiView):
    @operation("List the files of a failed pod", query=RetainedFilesQuery, page=KeptFileResponse)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, RetainedFilesQuery)
        workload = selectors.find_workload(self.actor, workload_id)
        pod_files = find_retained_files(self.actor, workload, query.pod, query.run, timezone.now())
        path = (query.path or "").strip("/")
        files = pod_files.list(path)
        if path:
            require_files(files, path)
        # The cursor is a path, because the files are sorted by path.
        later = [each for each in files.files if query.cursor is None or each.path > query.cursor]
        items = [KeptFileResponse(path=each.path, size=each.size) for each in later[: query.limit]]
        return Response({"items": items, "next": items[-1].path if len(later) > query.limit else None})

    @operation("Delete the files of failed pods before they expire", query=PodQuery, status=204)
    def delete(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, PodQuery)
        workload = selectors.find_workload(self.actor, workload_id)
        release_files(actor=self.actor, workload=workload, now=timezone.now(), pod=query.pod, run=query.run)
        return Response(status=204)


class DownloadWorkloadFiles(ApiView):
    @operation(
        "Download a file of a failed pod, or several files as a tar archive", query=DownloadFilesQuery,
        media_type=OCTETS,
    )  # fmt: skip
    def get(self, request: Request, workload_id: UUID) -> StreamingHttpResponse:
        query = parse_query(request, DownloadFilesQuery)
        workload = selectors.find_workload(self.actor, workload_id)
        pod_files = find_retained_files(self.actor, workload, query.pod, query.run, timezone.now())
        path = (query.path or "").strip("/")
        files = pod_files.list(path)
        require_files(files, path)
        record_read(actor=self.actor, workload=workload, pod=pod_files.pod)
        (first, *others) = files.files
        if first.path == path and not others and not query.archive:
            content = pod_files.read(first)
            return stream_download(request, content, path.rpartition("/")[2], first.size, OCTETS)
        size, parts = pod_files.archive(files.files)
        name = f"{workload.name}-{pod_files.pod.role}-{pod_files.pod.index}-run{pod_files.pod.run}-files.tar"
        return stream_download(request, parts, name, size, TAR)
