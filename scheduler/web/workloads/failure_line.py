"""Line of a failed workload's log that names the error, for the Timeline tab."""

import re
import uuid
from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from berth.server.web.pages import Request, signed_in
from projects.selectors import find_workload
from scheduler.api.logs.pod_log import PodLog, find_pod_log
from scheduler.reports.log_text import render_as_terminal_line
from scheduler.web.workloads.details import pod_placements
from scheduler.web.workloads.failure import first_failed_pod
from scheduler.web.workloads.logs.log import line_number

# The Overview tab finds the line with this pattern in JavaScript, so it must have the same meaning there.
FAILURE_PATTERN = r"error|exception|fatal|panic|killed|denied|not found|cannot|can't|failed"
_FAILURE = re.compile(FAILURE_PATTERN, re.IGNORECASE | re.ASCII)
MAX_LINES, MAX_LENGTH = 500, 300  # lines read at the end of the log, and characters shown
ERROR_LINES = 40  # number of last non-empty lines that may contain the error


@dataclass(frozen=True, slots=True)
class FailureLine:
    """Line of a log. `number` is None if the log is too long to number its lines."""

    offset: int
    number: int | None
    text: str


@signed_in
@require_GET
def show(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Return a link to the last error of the pod that failed first, or an empty response."""
    workload = find_workload(request.actor, workload_id)
    placements, _ = pod_placements(request.actor, workload)
    pod = first_failed_pod(workload, placements)
    log = find_pod_log(request.actor, workload.pk, str(pod.pk)) if pod else None
    context = {"workload": workload, "log": log, "line": log and find_failure_line(log)}
    return render(request, "scheduler/workloads/failure_line.html", context)


def find_failure_line(log: PodLog) -> FailureLine | None:
    """Return the last line that names an error, or the last line if no line does.

    Return None if the log is empty.
    """
    end = log.tail(MAX_LINES)
    first, offset = line_number(log, end.offset), end.offset
    lines = list[FailureLine]()
    for index, data in enumerate(end.data.split(b"\n")):
        if text := render_as_terminal_line(data).strip():
            lines.append(FailureLine(offset, None if first is None else first + index, text[:MAX_LENGTH]))
        offset += len(data) + 1
    last = lines[-ERROR_LINES:]
    return next((line for line in reversed(last) if _FAILURE.search(line.text)), last[-1] if last else None)
