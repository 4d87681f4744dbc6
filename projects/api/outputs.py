"""REST endpoints for pod outputs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from django.http import StreamingHttpResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import NotFound
from berth.core.problems import format_value
from berth.core.spec.sections.code import PATH_MAX
from berth.server.api.pagination import Order, page
from berth.server.api.requests import ListQuery, Query, Word, parse_query
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.transport.streaming import stream_download
from berth.server.api.views import ApiView
from projects import selectors
from projects.code.archive import CONTENT_TYPE as TAR
from projects.models import PodOutputs
from projects.services import code, outputs

OCTETS = "application/octet-stream"
NEWEST_PODS = Order("newest", ("pod__created_at", "id"), is_descending=True)
OutputStateName = Literal["waiting", "stored", "failed"]
PodName = Annotated[Word, Field(description="ROLE-INDEX; by default the first pod.")]
RunNumber = Annotated[int, Field(ge=1, le=2**31 - 1, description="By default the latest run with outputs.")]
OutputPathText = Annotated[str, Field(min_length=1, max_length=PATH_MAX)]


class PodOutputsResponse(ResponseModel):
    """Files that a pod produced: its outputs, or its changes to a volume. `size` is in bytes."""

    pod: str = Field(description="ROLE-INDEX")
    run: int
    paths: list[str] = Field(description="Declared paths. Empty for a volume.")
    volume: str | None = Field(
        description="Writable volume in S3 that the changed files are stored in. Null for declared outputs."
    )
    state: OutputStateName = Field(
        description="`waiting` until the pod has ended and its files are stored; `failed` if they cannot be."
    )
    message: str = Field(description="Reason why files are not stored, or not stored yet.")
    skipped: dict[str, str] = Field(description="Reason for each path that was left out.")
    size: int
    files: int = Field(description="Number of stored files.")
    deleted: int = Field(description="Number of objects that were deleted from the volume.")
    stored_at: datetime | None


class OutputFileResponse(ResponseModel):
    path: str
    size: int = Field(description="In bytes.")


class OutputFilesQuery(ListQuery):
    pod: PodName | None = None
    run: RunNumber | None = None


class DownloadQuery(Query):
    pod: PodName | None = None
    run: RunNumber | None = None
    path: Annotated[OutputPathText, Field(description="File or directory; by default everything.")] | None = (
        None
    )
    archive: Annotated[bool, Field(description="Return a tar archive even of a single file.")] = False


class WorkloadOutputs(ApiView):
    @operation("List the outputs of a workload's pods", query=ListQuery, page=PodOutputsResponse)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, ListQuery)
        workload = selectors.find_workload(self.actor, workload_id)
        return Response(page(outputs.workload_outputs(workload), query, NEWEST_PODS, _serialize))


class WorkloadOutputFiles(ApiView):
    @operation("List the stored output files of a pod", query=OutputFilesQuery, page=OutputFileResponse)
    def get(self, request: Request, workload_id: UUID) -> Response:
        query = parse_query(request, OutputFilesQuery)
        workload = selectors.find_workload(self.actor, workload_id)
        stored = outputs.find_outputs(workload, query.pod, query.run)
        assert stored.tree is not None
        # The cursor is a path: the files of a tree are sorted and never change.
        files = [file for file in stored.tree.files if query.cursor is None or file["path"] > query.cursor]
        items = [
            OutputFileResponse(path=file["path"], size=file.get("size", 0)) for file in files[: query.limit]
        ]
        has_more = len(files) > query.limit
        return Response({"items": items, "next": items[-1].path if has_more else None})


class DownloadOutputs(ApiView):
    @operation(
        "Download a stored output file, or several files as a tar archive", query=DownloadQuery,
        media_type=OCTETS,
    )  # fmt: skip
    def get(self, request: Request, workload_id: UUID) -> StreamingHttpResponse:
        query = parse_query(request, DownloadQuery)
        workload = selectors.find_workload(self.actor, workload_id)
        stored = outputs.find_outputs(workload, query.pod, query.run)
        assert stored.tree is not None
        path = (query.path or "").strip("/")
        files = outputs.output_files(stored.tree, path)
        if not files:
            raise NotFound(
                f"Workload {workload.name} has no output file {format_value(query.path)}. "
                f"List its files with `berth outputs files {workload.handle}`."
            )
        if len(files) == 1 and files[0]["path"] == path and not query.archive:
            (file,) = files
            content = code.read_file(stored.tree, file)
            return stream_download(request, content, path.rpartition("/")[2], file.get("size", 0), OCTETS)
        size, parts = code.read_tree(stored.tree, path)
        name = f"{workload.name}-{stored.pod.role}-{stored.pod.index}-run{stored.pod.run}.tar"
        return stream_download(request, parts, name, size, TAR)


def _serialize(rows: Sequence[PodOutputs]) -> list[PodOutputsResponse]:
    return [
        PodOutputsResponse.from_row(
            row, pod=f"{row.pod.role}-{row.pod.index}", run=row.pod.run, volume=row.volume or None,
            size=row.tree.size if row.tree else row.size, deleted=row.deleted_count,
            files=row.tree.file_count if row.tree else row.file_count,
        )
        for row in rows
    ]  # fmt: skip
