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


def answered(request_span: Span, request: HttpRequest, response: HttpResponseBase) -> None:
    if request_span is NOTHING:
        return
    route = route_of(request)
    if route:
        request_span.name(f"{request.method} {route}")
    request_span.set_attributes(http__route=route or None, http__response__status_code=response.status_code)
    if response.status_code >= BROKEN:
        request_span.failed(f"status {response.status_code}")


def route_of(request: HttpRequest) -> str:
    """Return the URL pattern of the request, or an empty string for unknown paths."""
    match = request.resolver_match
    return f"/{match.route}" if match is not None and match.route is not None else ""
