"""Here a page reads a pod's log, from its end or on from where it was."""

import uuid

from django.http import Http404, HttpResponse
from django.views.decorators.http import require_GET

from berth.core.errors import Unavailable
from berth.web.pages import Request, signed_in
from berth.wiring import NotWired, wired
from pools.runtimes.base import LogChunk, RuntimeFailure
from projects.models import Pod
from projects.selectors import pods

MOST_BYTES, MOST_LINES = 256 * 1024, 2000


@signed_in
@require_GET
def read(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    try:
        pod = pods(request.acting).get(workload=workload_id, pk=uuid.UUID(request.GET.get("pod", "")))
    except (Pod.DoesNotExist, ValueError):
        raise Http404 from None
    chunk = _chunk(pod, request)
    answer = HttpResponse(chunk.data, content_type="text/plain; charset=utf-8")
    answer.headers["X-Next-Offset"] = str(chunk.next_offset)
    answer.headers["X-Complete"] = "true" if chunk.complete else "false"
    return answer


def _chunk(pod: Pod, request: Request) -> LogChunk:
    offset = request.GET.get("offset", "")
    try:
        runtime = wired().runtime_of(pod.node.pool)
        if offset.isdecimal():
            return runtime.read_log(str(pod.pk), int(offset), MOST_BYTES)
        lines = request.GET.get("tail", "")
        return runtime.tail_log(str(pod.pk), min(int(lines), MOST_LINES) if lines.isdecimal() else MOST_LINES)
    except (RuntimeFailure, NotWired) as error:
        raise Unavailable(f"The log cannot be read now: {error}") from None
