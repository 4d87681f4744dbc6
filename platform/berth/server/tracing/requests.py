"""Spans around requests, named by route because addresses may contain secrets."""

from django.http import HttpRequest, HttpResponseBase

from berth.server.tracing.spans import NOTHING, Span, is_collected, span

UNTOLD = ("/static/", "/healthz", "/readyz", "/metrics")
BROKEN = 500


def of_request(request: HttpRequest, request_id: str) -> Span:
    if not is_collected() or request.path.startswith(UNTOLD):
        return NOTHING
    return span(
        request.method or "GET",
        headers={"traceparent": request.headers.get("traceparent", ""),
                 "tracestate": request.headers.get("tracestate", "")},
        http__request__method=request.method, url__scheme=request.scheme, berth__request_id=request_id,
    )  # fmt: skip


def answered(told: Span, request: HttpRequest, response: HttpResponseBase) -> None:
    if told is NOTHING:
        return
    route = route_of(request)
    if route:
        told.name(f"{request.method} {route}")
    told.tell(http__route=route or None, http__response__status_code=response.status_code)
    if response.status_code >= BROKEN:
        told.failed(f"status {response.status_code}")


def route_of(request: HttpRequest) -> str:
    """As it stands in the list of addresses; none for what is nowhere."""
    match = request.resolver_match
    return f"/{match.route}" if match is not None and match.route is not None else ""
