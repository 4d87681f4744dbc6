"""Base views for REST endpoints: authentication, scopes, rate limits and response headers."""

from io import SEEK_END, BytesIO
from typing import Any, ClassVar, cast

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.permissions import SAFE_METHODS, AllowAny, BasePermission
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from berth.core.errors import Forbidden, Invalid, Malformed, MissingScope, NotFound, TooLarge, Unauthenticated
from berth.server.api import rate_limits
from berth.server.api.idempotency import UsedKey
from berth.server.api.parsers import is_batch, max_body_size, too_large_message
from berth.server.api.requests import Query, parse_query
from berth.server.api.responses import JsonRenderer
from berth.server.api.schema import ApiSchema, Operation


class SingleRenderer(BaseContentNegotiation):
    """Content negotiation that ignores the Accept header, because every response is JSON."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        kind = (request.content_type or "application/json").split(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class HasScope(BasePermission):
    """Permission that requires the token scope for the request's method. Services check the user's roles."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not request.user.is_authenticated:
            return False
        assert isinstance(view, ApiView)
        scope = "read" if request.method in SAFE_METHODS else view.change_scope
        if scope not in view.actor.scopes:
            raise MissingScope(scope)
        return True


class ApiView(APIView):
    """View for one URL.

    A subclass parses the request, calls one service or selector and builds the response. Query parameters
    must be declared by the method's `operation`.
    """

    change_scope: ClassVar[str] = "write"
    permission_classes = [HasScope]
    renderer_classes = [JsonRenderer]
    content_negotiation_class = SingleRenderer
    schema = ApiSchema()
    budget: rate_limits.Budget | None = None
    used_key: UsedKey | None = None  # idempotency key under which the response must be stored

    @property
    def actor(self) -> Any:
        """Actor that services and selectors receive, limited to the scopes of the request's token."""
        return self.request.auth

    def require(self, action: str, obj: object = None) -> None:
        """Raise NotFound or Forbidden unless the user may perform `action`, a `projects.access.Action`."""
        self.actor.require(action, obj)

    def is_allowed(self, action: str, obj: object = None) -> bool:
        """Return whether the user may perform `action`, for responses that then contain more."""
        try:
            self.require(action, obj)
        except (Forbidden, NotFound):
            return False
        return True

    def is_slow_dry_run(self, request: Request) -> bool:
        """Return whether the request calls other systems and must therefore run outside a transaction."""
        return False

    def stores_response(self, request: Request) -> bool:
        """Return whether the handler stores its own response to a request with an idempotency key."""
        return False

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        _set_content_length(request)
        return super().initialize_request(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        _check_readable(request)
        super().initial(request, *args, **kwargs)
        handler = getattr(self, (request.method or "").lower(), None)
        operation: Operation | None = getattr(handler, "operation", None)
        if operation is not None and operation.query is None:
            parse_query(request, Query)

    def check_throttles(self, request: Request) -> None:
        bucket = "read" if request.method in SAFE_METHODS else "write"
        self.spend(bucket, f"user {request.user.pk}")

    def spend(self, bucket: str, client: str, amount: int = 1) -> None:
        """Count this request, and keep the budget for the response headers. Raises LimitExceeded."""
        try:
            self.budget = rate_limits.spend(bucket, client, amount)
        except rate_limits.LimitExceeded as error:
            self.budget = error.budget
            raise

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        final = super().finalize_response(request, response, *args, **kwargs)
        final.headers["Cache-Control"] = "no-store"
        final.headers["X-Content-Type-Options"] = "nosniff"
        if self.budget is not None:
            for name, value in self.budget.headers().items():
                final.headers[name] = value
        return final


class TokenlessView(ApiView):
    """View that authenticates a request by a secret that the request contains, not by a user's token.

    Failed attempts are rate-limited by IP address.
    """

    authentication_classes = []
    permission_classes = [AllowAny]
    caller: ClassVar[str]  # kind of caller; each has its own rate limit

    def check_throttles(self, request: Request) -> None:
        """Skip the per-user rate limit, because the handler identifies the caller later."""

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, Unauthenticated | Invalid | Malformed):
            try:
                self.spend("bad_token", f"{self.caller} at {rate_limits.client_address(self.request)}")
            except rate_limits.LimitExceeded as error:
                exc = error
        return super().handle_exception(exc)


def _set_content_length(request: HttpRequest) -> None:
    """Set the length of a chunked body, which Django would otherwise read as empty."""
    if isinstance(request, ASGIRequest) and "CONTENT_LENGTH" not in request.META:
        size = request._stream.seek(0, SEEK_END)
        request._stream.seek(0)
        request.META["CONTENT_LENGTH"] = str(size)


def _check_readable(request: Request) -> None:
    """Reject oversized bodies, and URLs with NUL bytes, which PostgreSQL cannot store."""
    text = request.get_full_path()
    if "%00" in text or "\x00" in text:
        raise Malformed("The URL contains a NUL byte. Remove it.")
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        raise Malformed("Content-Length is not a number. Send the length of the body in bytes.") from None
    if length > max_body_size(request.path):
        raise TooLarge(too_large_message(max_body_size(request.path)))
    if is_batch(request.path):
        _read_large_body(request._request)


def _read_large_body(request: HttpRequest) -> None:
    """Read the body into memory, even if it exceeds Django's limit. Its declared length has been checked."""
    body = request.read(max_body_size(request.path) + 1)
    if len(body) > max_body_size(request.path):
        raise TooLarge(too_large_message(max_body_size(request.path)))
    cast("Any", request)._body = body
    cast("Any", request)._stream = BytesIO(body)
