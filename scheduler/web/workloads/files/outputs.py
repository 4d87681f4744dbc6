"""Outputs of a workload's pods: a list of files, and previews of text files."""

from typing import Any
from urllib.parse import urlencode

from berth.server.web.pages import Request
from projects.code.base import StoreFailure
from projects.models import OutputState, PodOutputs, Workload
from projects.services import code
from projects.services.outputs import output_files, workload_outputs
from scheduler.web.workloads.files.file_rows import (
    FILES_MAX,
    PREVIEW_BYTES,
    TEXT_SUFFIXES,
    FileRow,
    Preview,
    preview_text,
)
from scheduler.web.workloads.files.retained_files import load_retained_files

PODS_MAX = 100


def load_outputs(request: Request, workload: Workload) -> dict[str, Any]:
    """Return the pods with outputs, and the files of the selected pod, by default the first pod
    with files.
    """
    rows = list(workload_outputs(workload)[:PODS_MAX])
    chosen = next((row for row in rows if str(row.pk) == request.GET.get("pod")), None)
    chosen = chosen or next((row for row in rows if row.tree is not None), None)
    files = output_files(chosen.tree) if chosen and chosen.tree else []
    return {
        "outputs": rows,
        "chosen": chosen,
        "files": [_build_file_row(chosen, file) for file in files[:FILES_MAX]] if chosen else [],
        "more": max(len(files) - FILES_MAX, 0),
        "preview": _build_preview(chosen, request.GET.get("path", "")) if chosen else None,
        "outputs_follow": any(row.state == OutputState.WAITING for row in rows),
        "declared": workload.spec.get("outputs", ()),
        **load_retained_files(request, workload),
    }


def _build_file_row(outputs: PodOutputs, file: dict[str, Any]) -> FileRow:
    pod = outputs.pod
    query = urlencode({"pod": f"{pod.role}-{pod.index}", "run": pod.run, "path": file["path"]})
    return FileRow(file["path"], file.get("size", 0), query, file["path"].endswith(TEXT_SUFFIXES))


def _build_preview(outputs: PodOutputs, path: str) -> Preview | None:
    """Return a preview of a text file without its control characters, or None if there is no such file."""
    if outputs.tree is None or not path.endswith(TEXT_SUFFIXES):
        return None
    file = next((each for each in outputs.tree.files if each["path"] == path), None)
    if file is None:
        return None
    try:
        content = next(code.read_file(outputs.tree, {**file, "chunks": file.get("chunks", ())[:1]}), b"")
    except StoreFailure as error:
        return Preview(path, "", False, error.detail)
    return Preview(path, preview_text(content), file.get("size", 0) > PREVIEW_BYTES, "")
