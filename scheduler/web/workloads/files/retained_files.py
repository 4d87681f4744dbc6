"""Files of failed pods on the workload page."""

import uuid
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from berth.core.errors import BerthError
from berth.server.web.pages import Request, confirm_page, signed_in, success_response
from pools.runtimes.files.base import PodFile
from projects.access import Action, may
from projects.models import Pod, Workload
from projects.selectors import find_workload
from projects.services.retained_files import PODS_MAX, pods_with_retained_files, record_read, release_files
from scheduler.api.files.retained_files import find_retained_files
from scheduler.web.workloads.files.file_rows import (
    FILES_MAX,
    PREVIEW_BYTES,
    TEXT_SUFFIXES,
    FileRow,
    Preview,
    preview_text,
)

Context = dict[str, Any]


def load_retained_files(request: Request, workload: Workload) -> Context:
    """Return the failed pods whose files are kept, and the files of the selected pod.

    The result is empty for users who may not run commands in the pods.
    """
    if not may(request.actor, Action.OPERATE, workload):
        return {}
    now = timezone.now()
    pods = list(pods_with_retained_files(workload, now)[:PODS_MAX])
    chosen = next((pod for pod in pods if str(pod.pk) == request.GET.get("failed")), None)
    context: Context = {"retained_pods": pods, "retained_pod": chosen}
    if chosen is None:
        return context
    try:
        pod_files = find_retained_files(
            request.actor, workload, f"{chosen.role}-{chosen.index}", chosen.run, now
        )
        files = pod_files.list().files
        rows = [_build_file_row(chosen, file) for file in files[:FILES_MAX]]
        context |= {"retained_rows": rows, "retained_more": len(files) - len(rows)}
        if file := _previewed_file(files, request.GET.get("path", "")):
            record_read(actor=request.actor, workload=workload, pod=chosen)
            text = preview_text(pod_files.read_first_bytes(file, PREVIEW_BYTES))
            context["preview"] = Preview(file.path, text, file.size > PREVIEW_BYTES, "")
    except BerthError as error:
        context["retained_problem"] = error.detail
    return context


def _build_file_row(pod: Pod, file: PodFile) -> FileRow:
    query = urlencode({"pod": f"{pod.role}-{pod.index}", "run": pod.run, "path": file.path})
    return FileRow(file.path, file.size, query, file.path.endswith(TEXT_SUFFIXES))


def _previewed_file(files: tuple[PodFile, ...], path: str) -> PodFile | None:
    """Return the file at `path`, or None if the file does not exist or has no preview."""
    file = next((each for each in files if each.path == path), None)
    return file if path.endswith(TEXT_SUFFIXES) else None


@signed_in
@require_http_methods(["GET", "POST"])
def delete(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Delete the files of the workload's failed pods before they expire."""
    workload = find_workload(request.actor, workload_id)
    request.require(Action.OPERATE, workload)
    back = reverse("workload-outputs", args=[workload.pk])
    if request.method == "POST":
        release_files(actor=request.actor, workload=workload, now=timezone.now())
        return success_response(
            request, f"Files of {workload.name}'s failed pods deleted.", to=back, leave=True
        )
    return confirm_page(
        request, title=f"Delete the files of {workload.name}'s failed pods?",
        warning="Logs and outputs are kept. Nodes delete the files within two minutes.",
        label="Delete files", danger=True, back=back,
    )  # fmt: skip
