"""Link to the latest error of a running workload, which the header shows on all tabs."""

import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from berth.core.errors import Unavailable
from berth.core.wording.words import format_count
from berth.server.web.pages import Request, signed_in
from pools.runtimes.base import LogChunk
from projects import selectors
from projects.models import Phase, Workload
from projects.selectors import find_workload
from scheduler.api.logs.pod_log import PodLog, find_pod_log
from scheduler.api.logs.timestamps import times_at
from scheduler.reports.log_errors import search_errors
from scheduler.reports.log_search import LinePosition
from scheduler.web.workloads.logs.log import line_number

MAX_LINES = 500  # number of lines at the end of the log that are searched
# Maximum number of bytes to search, and of earlier bytes to read for the line numbers.
# The limit is low, because every open page requests the link regularly.
MAX_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class LatestError:
    """Error in a pod's log.

    `line` is None if the log is very long, and `time` is None if the log contains no times. `is_last_line` is
    False if the pod has written more lines since the error.
    """

    pod_id: uuid.UUID
    offset: int
    line: int | None
    time: datetime | None
    text: str
    is_last_line: bool


@signed_in
@require_GET
def show(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Return a link to the latest error in the first pod's log.

    The response is empty if there is no error or the log cannot be read now.
    """
    workload = find_workload(request.actor, workload_id)
    try:
        log = _first_log(request, workload)
        error = log and _latest_error(log)
    except Unavailable:
        error = None
    context = {"workload": workload, "error": error}
    return render(request, "scheduler/workloads/latest_error.html", context)


def _first_log(request: Request, workload: Workload) -> PodLog | None:
    """Return the log that the Logs tab shows first, or None if the workload is not running."""
    if workload.phase != Phase.RUNNING:
        return None
    rows = selectors.pods(request.actor).filter(workload=workload, run=workload.run)
    pod = rows.order_by("rank", "role", "index").first()
    return find_pod_log(request.actor, workload.pk, str(pod.pk)) if pod else None


def _latest_error(log: PodLog) -> LatestError | None:
    end = log.tail(MAX_LINES, MAX_BYTES)
    first_line = line_number(log, end.offset) if end.offset <= MAX_BYTES else None

    def read(offset: int, limit: int) -> LogChunk:
        data = end.data[offset - end.offset :][:limit]
        return replace(end, data=data, offset=offset, next_offset=offset + len(data), size=end.next_offset)

    start = LinePosition(end.offset, first_line or 1)
    errors = search_errors(read, start=start, max_matches=MAX_LINES, context_lines=0)
    if not errors.lines:
        return None
    at = errors.lines[-1].at
    line = None if first_line is None else at.line
    milliseconds = times_at(log, [at.offset])[0]
    time = datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None
    if end.offset:
        text = "Latest error"
    elif errors.matches == 1:
        text = "1 error"
    else:
        text = f"{format_count(errors.matches, 'error')}, latest"
    is_last_line = b"\n" not in end.data[at.offset - end.offset :].rstrip()
    return LatestError(log.pod.pk, at.offset, line, time, text, is_last_line)
