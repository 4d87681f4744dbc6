"""REST endpoints for code that is submitted with workloads."""

from typing import Annotated, Any
from uuid import UUID

from django.http import StreamingHttpResponse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Conflict, Invalid, NotFound, Unauthenticated
from berth.core.frames import CONTENT_TYPE
from berth.core.problems import Problem, format_value
from berth.core.spec.sections.code import CHUNK_BYTES, PATH_MAX, Digest
from berth.server.api.parsers import FramesParser
from berth.server.api.requests import Body, Query, parse_body, parse_query, validate
from berth.server.api.responses import ResponseModel, no_content
from berth.server.api.schema import operation
from berth.server.api.transport.streaming import stream_bytes
from berth.server.api.views import ApiView, TokenlessView
from pools.joining import secrets
from projects import selectors
from projects.code.archive import CONTENT_TYPE as TAR
from projects.code.base import CodeFile
from projects.models import CodeTree, Pod, PodState
from projects.services import code

CHUNKS_PER_REQUEST = 2000
Path = Annotated[str, Field(min_length=1, max_length=PATH_MAX)]


class CodeFileBody(Body):
    """File, or a symbolic link if `link` is set."""

    path: Annotated[Path, Field(description="Relative path with names joined by /.")]
    size: Annotated[int, Field(ge=0, le=2**40, description="In bytes.")] = 0
    chunks: Annotated[
        tuple[Digest, ...],
        Field(strict=False, description=f"SHA-256 digests of the file's parts of {CHUNK_BYTES} bytes each."),
    ] = ()
    executable: bool = False
    link: Annotated[str, Field(max_length=PATH_MAX, description="Target of a symbolic link.")] = ""


class CodeTreeBody(Body):
    files: Annotated[tuple[CodeFileBody, ...], Field(strict=False)]


class CodeTreeResponse(ResponseModel):
    tree: str = Field(description="ID for `code.tree` of a workload document.")
    size: int = Field(description="Size of all files in bytes.")
    files: int = Field(description="Number of files.")
    missing: list[str] = Field(
        description="Chunks to upload before the request is repeated. If there are none, the tree is stored."
    )


class ProjectCodeResponse(ResponseModel):
    """Size of a project's stored code, and the limits on it. All values except `files_max` are in bytes."""

    size_max: int
    files_max: int
    stored: int = Field(description="Size in bytes of all code that the project has stored.")
    stored_max: int


class ChunkMetadata(Body):
    digest: Digest


class ProjectCode(ApiView):
    @operation("Get the limits and the size of a project's code", response=ProjectCodeResponse)
    def get(self, request: Request, name: str) -> Response:
        project, limits = selectors.find_project(self.actor, name), code.code_limits()
        return Response(
            ProjectCodeResponse(
                size_max=limits.size, files_max=limits.files, stored=code.stored_size(project),
                stored_max=limits.project_size,
            )
        )  # fmt: skip


class ProjectCodeTree(ApiView):
    @operation(
        "Store a list of files, or find out which chunks to upload first", body=CodeTreeBody,
        response=CodeTreeResponse,
    )  # fmt: skip
    def put(self, request: Request, name: str) -> Response:
        project = selectors.find_project(self.actor, name)
        self.require("submit", project)
        files = [
            CodeFile(file.path, file.size, file.chunks, file.executable, file.link)
            for file in parse_body(request, CodeTreeBody).files
        ]
        stored = code.register_tree(actor=self.actor, project=project, files=files)
        return Response(
            CodeTreeResponse(
                tree=stored.digest, size=stored.size, files=stored.file_count, missing=stored.missing
            )
        )


class ProjectCodeChunks(ApiView):
    parser_classes = [FramesParser]

    @operation("Upload chunks of files", body_type=CONTENT_TYPE, status=204)
    def put(self, request: Request, name: str) -> Response:
        project = selectors.find_project(self.actor, name)
        self.require("submit", project)
        code.store_chunks(actor=self.actor, project=project, chunks=_parse_chunks(request.data))
        return no_content()


class WorkloadCode(ApiView):
    @operation("Download a workload's code as a tar archive", media_type=TAR)
    def get(self, request: Request, workload_id: UUID) -> StreamingHttpResponse:
        workload = selectors.find_workload(self.actor, workload_id)
        if "code" not in workload.spec:
            raise NotFound("This workload was submitted without code.")
        if workload.code_id is None:
            raise Conflict("This workload's code has expired and is no longer stored. Resubmit the workload.")
        disposition = {"Content-Disposition": f'attachment; filename="{workload.name}-code.tar"'}
        return _stream_tree(request, workload.code_id, **disposition)


class PodCodeQuery(Query):
    verify: Annotated[
        bool, Field(description="Check all files first. If one is damaged, the response has status 409.")
    ] = False


class PodCode(TokenlessView):
    """Code of a pod, for download by the pod's node. The node authenticates with the pod's secret."""

    caller = "pod"

    @operation("Download a starting pod's code as a tar archive", query=PodCodeQuery, media_type=TAR)
    def get(self, request: Request, pod_id: UUID) -> StreamingHttpResponse:
        scheme, _, secret = str(request.headers.get("Authorization", "")).partition(" ")
        if scheme.lower() != "bearer" or secrets.verified_key(secret.strip(), "downloads") != str(pod_id):
            raise Unauthenticated("Send the pod's secret in the header `Authorization: Bearer ...`.")
        live = Pod.objects.filter(pk=pod_id, state__in=(PodState.STARTING, PodState.RUNNING))
        tree = live.values_list("workload__code", flat=True).first()
        if tree is None:
            raise Unauthenticated("This pod is unknown, has ended, or has no code.")
        if parse_query(request, PodCodeQuery).verify:
            code.verify_tree(CodeTree.objects.get(pk=tree))
        return _stream_tree(request, tree)


def _stream_tree(request: Request, pk: int, **headers: str) -> StreamingHttpResponse:
    tree = CodeTree.objects.get(pk=pk)
    size, parts = code.read_tree(tree)
    return stream_bytes(request, parts, TAR, **{"Content-Length": str(size)}, **headers)


def _parse_chunks(frames: Any) -> list[tuple[str, bytes]]:
    if not isinstance(frames, list) or not 0 < len(frames) <= CHUNKS_PER_REQUEST:
        received = format_value(len(frames) if isinstance(frames, list) else None)
        raise Invalid([Problem("", "wrong number of chunks", received, f"1 to {CHUNKS_PER_REQUEST}")])
    return [(validate(ChunkMetadata, header).digest, content) for header, content in frames]
