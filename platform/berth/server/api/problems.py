"""Convert every exception to a problem document (RFC 9457)."""

import logging
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions as drf
from rest_framework.response import Response

from berth.core import errors
from berth.core.errors import BerthError
from berth.core.problems import Problem, format_value

logger = logging.getLogger("berth.server.api")

CONTENT_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="berth"'
CONNECTION_ERRORS = (OperationalError, InterfaceError)


class MethodNotAllowed(BerthError):
    code, status, title = "method-not-allowed", 405, "Method not allowed for this URL"


class UnsupportedMediaType(BerthError):
    code, status, title = "unsupported-media-type", 415, "Unsupported media type"


class InternalError(BerthError):
    code, status, title = "broken", 500, "Internal error"


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response:
    """Return the problem document for an exception that a REST view raised."""
    error = to_logged_error(exc)
    request = context.get("request")
    document = {**error.to_problem(), "request_id": getattr(request, "request_id", "")}
    return Response(document, error.status, headers=_headers(error, exc), content_type=CONTENT_TYPE)


def to_logged_error(exc: Exception) -> BerthError:
    """Convert an exception to a BerthError. Log its traceback if the server is at fault."""
    error = to_error(exc)
    if error.status >= 500:
        logger.error("%s: %s", type(exc).__name__, error.code, exc_info=exc)
    return error


def to_error(exc: Exception) -> BerthError:
    """Convert any exception to a BerthError. For an unexpected exception, the error reveals no internals."""
    if isinstance(exc, BerthError):
        return exc
    if isinstance(exc, drf.APIException):
        return _convert_framework_error(exc)
    if isinstance(exc, Http404):
        return errors.NotFound()
    if isinstance(exc, PermissionDenied):
        return errors.Forbidden()
    if isinstance(exc, RequestDataTooBig):
        return errors.TooLarge()
    if isinstance(exc, SuspiciousOperation):
        return errors.Malformed()
    if isinstance(exc, IntegrityError):
        logger.warning("Database constraint violated", exc_info=exc)
        return errors.Conflict(
            "Another request changed the same object at the same time. Fetch it again and retry."
        )
    if isinstance(exc, CONNECTION_ERRORS):
        return errors.Unavailable("The database is unavailable. Try again in a few seconds.", retry_after=5)
    return InternalError("The request failed. The server log has the details under this request_id.")


@csrf_exempt  # this view changes no state, and Django would report CSRF errors as HTML
def not_found(request: HttpRequest, *args: object, **kwargs: object) -> JsonResponse:
    """Respond with status 404 to requests for unknown URLs under /api/."""
    error = errors.NotFound(
        f"No endpoint at {format_value(request.path)}. See /api/v1/docs for all endpoints."
    )
    document = {**error.to_problem(), "request_id": getattr(request, "request_id", "")}
    return JsonResponse(document, status=error.status, content_type=CONTENT_TYPE)


def _convert_framework_error(exc: drf.APIException) -> BerthError:
    detail = str(exc.detail)
    if isinstance(exc, drf.NotAuthenticated | drf.AuthenticationFailed):
        return errors.Unauthenticated(detail)
    if isinstance(exc, drf.PermissionDenied):
        return errors.Forbidden(detail)
    if isinstance(exc, drf.MethodNotAllowed):
        return MethodNotAllowed(detail)
    if isinstance(exc, drf.UnsupportedMediaType):
        allowed = "application/json or application/yaml"
        return UnsupportedMediaType(errors=[Problem("Content-Type", detail, "", allowed).to_dict()])
    if isinstance(exc, drf.NotFound):
        return errors.NotFound(detail)
    return errors.Malformed(detail)


def _headers(error: BerthError, exc: Exception) -> dict[str, str]:
    headers = {}
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = CHALLENGE
    if retry_after := error.extra.get("retry_after"):
        headers["Retry-After"] = str(retry_after)
    return headers
