"""Base view of the REST endpoints: authentication, scopes, limits and idempotency."""

from io import SEEK_END
from typing import Any, ClassVar

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.permissions import SAFE_METHODS, AllowAny, BasePermission
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from berth.core.errors import Forbidden, Invalid, Malformed, NotFound, TooLarge, Unauthenticated
from berth.server.api import limits
from berth.server.api.parsers import TOO_LARGE, body_max
from berth.server.api.render import AnswerRenderer
from berth.server.api.schema import DoorSchema


class OneAnswer(BaseContentNegotiation):
    """Every answer has one form, whatever a client says it would rather have."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        kind = (request.content_type or "application/json").split(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class HasScope(BasePermission):
    """A token must carry the scope that the method needs; what the person may is decided further in."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not request.user.is_authenticated:
            return False
        assert isinstance(view, Door)
        needed = "read" if request.method in SAFE_METHODS else view.change_scope
        if needed not in view.acting.scopes:
            raise Forbidden(f"This token lacks the scope {needed}.", allowed=[needed])
        return True


class Door(APIView):
    """One address. A subclass reads its body and query, makes one call, and says how the answer looks."""

    change_scope: ClassVar[str] = "write"
    permission_classes = [HasScope]
    renderer_classes = [AnswerRenderer]
    content_negotiation_class = OneAnswer
    schema = DoorSchema()
    budget: limits.Budget | None = None

    @property
    def acting(self) -> Any:
        """Who acts, with which scopes: what every service and selector asks for."""
        return self.request.auth

    def require(self, action: str, obj: object = None) -> None:
        """Raise NotFound or Forbidden unless the user may perform this `projects.access.Action`."""
        self.acting.require(action, obj)

    def allowed(self, action: str, obj: object = None) -> bool:
        """For answers that tell more to those who run things (and whose token has the scope for it)."""
        try:
            self.require(action, obj)
        except (Forbidden, NotFound):
            return False
        return True

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        _measure_body(request)
        return super().initialize_request(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        _readable(request)
        super().initial(request, *args, **kwargs)

    def check_throttles(self, request: Request) -> None:
        bucket = "read" if request.method in SAFE_METHODS else "write"
        self.spend(bucket, f"user {request.user.pk}")

    def spend(self, bucket: str, who: str) -> None:
        """The answer says what is left, also the one that refuses."""
        try:
            self.budget = limits.spend(bucket, who)
        except limits.Spent as refusal:
            self.budget = refusal.budget
            raise

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        final = super().finalize_response(request, response, *args, **kwargs)
        final.headers["Cache-Control"] = "no-store"
        final.headers["X-Content-Type-Options"] = "nosniff"
        if self.budget is not None:
            for name, value in self.budget.headers().items():
                final.headers[name] = value
        return final


class DoorBySecret(Door):
    """Knows no people: the secret in the request is all there is, and guessing it is slowed by address."""

    authentication_classes = []
    permission_classes = [AllowAny]
    caller: ClassVar[str]  # in words

    def check_throttles(self, request: Request) -> None:
        """Who it is that calls is known further in."""

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, Unauthenticated | Invalid | Malformed):
            try:
                self.spend("bad_token", f"{self.caller} at {limits.caller(self.request)}")
            except limits.Spent as refusal:
                exc = refusal
        return super().handle_exception(exc)


def created(answer: Any, location: str, **headers: str) -> Response:
    return Response(answer, 201, headers={"Location": location, **headers})


def done() -> Response:
    return Response(status=204)


def _measure_body(request: HttpRequest) -> None:
    """A chunked body announces no length, and the framework would take it for none."""
    if isinstance(request, ASGIRequest) and "CONTENT_LENGTH" not in request.META:
        size = request._stream.seek(0, SEEK_END)
        request._stream.seek(0)
        request.META["CONTENT_LENGTH"] = str(size)


def _readable(request: Request) -> None:
    """A NUL byte is in no name that exists, and the database refuses it; a long body is not even read."""
    text = request.get_full_path()
    if "%00" in text or "\x00" in text:
        raise Malformed("The address holds a NUL byte.")
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        raise Malformed("Content-Length is not a number.") from None
    if length > body_max(request.path):
        raise TooLarge(TOO_LARGE)
