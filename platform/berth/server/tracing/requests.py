"""OpenTelemetry spans around requests, named by route because URLs may contain secrets."""

from django.http import HttpRequest, HttpResponseBase

from berth.server.tracing.spans import NO_SPAN, Span, is_tracing_enabled, span

UNTRACED_PATHS = ("/static/", "/healthz", "/readyz", "/metrics")
SERVER_ERROR = 500


def start_request_span(request: HttpRequest, request_id: str) -> Span:
    if not is_tracing_enabled() or request.path.startswith(UNTRACED_PATHS):
        return NO_SPAN
    return span(
        request.method or "GET",
        headers={"traceparent": request.headers.get("traceparent", ""),
                 "tracestate": request.headers.get("tracestate", "")},
        http__request__method=request.method, url__scheme=request.scheme, berth__request_id=request_id,
    )  # fmt: skip


def finish_request_span(request_span: Span, request: HttpRequest, response: HttpResponseBase) -> None:
    if request_span is NO_SPAN:
        return
    route = route_pattern(request)
    if route:
        request_span.rename(f"{request.method} {route}")
    request_span.set_attributes(http__route=route or None, http__response__status_code=response.status_code)
    if response.status_code >= SERVER_ERROR:
        request_span.mark_failed(f"status {response.status_code}")


def route_pattern(request: HttpRequest) -> str:
    """Return the URL pattern of the request, or an empty string for unknown paths."""
    match = request.resolver_match
    return f"/{match.route}" if match is not None and match.route is not None else ""
