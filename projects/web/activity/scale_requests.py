"""Describe audit entries about scale requests, with the service's name instead of the request's ID."""

import re
from collections.abc import Iterable

from django.urls import reverse

from berth.core.wording.words import format_count
from projects.models import Audit, ScaleRequest

RECORDED_NAME = re.compile(r"(scale.(?:out|in)) of (.+)", re.IGNORECASE)
NOUNS = {"scale_out": "scale-out", "scale_in": "scale-in"}


def scale_requests(rows: Iterable[Audit]) -> dict[str, ScaleRequest]:
    """Return the entries' scale requests with their services, keyed by request ID."""
    ids = {row.object_id for row in rows if row.object_type == "scalerequest"}
    if not ids:
        return {}
    requests = ScaleRequest.objects.filter(pk__in=ids).select_related("service__workload")
    return {str(request.pk): request for request in requests}


def describe_request(row: Audit, request: ScaleRequest | None) -> tuple[str, str, str, str]:
    """Return the parts of a sentence about a scale request.

    The parts are the verb phrase, the service's name, the service's URL, and the number of engines.
    """
    recorded = RECORDED_NAME.match(row.object_name)
    direction = request.direction if request else row.action
    noun = NOUNS.get(direction, recorded[1].lower() if recorded else "scale request")
    verb = {"cancel": "cancelled"}.get(row.action, "requested")
    after = row.after or {}
    engines = after.get("num_replicas") or len(after.get("engine_urls") or ())
    tail = f": {format_count(engines, 'engine')}" if engines else ""
    if request is None:
        if recorded is None:
            return f"{verb} a {noun} of", "a deleted service", "", tail
        return f"{verb} a {noun} of service", recorded[2], "", tail
    url = reverse("service", args=[request.service.workload_id])
    return f"{verb} a {noun} of service", str(request.service), url, tail
