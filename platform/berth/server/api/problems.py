"""Turn every exception into a problem document (RFC 9457)."""

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
from berth.core.problems import Problem, shown

logger = logging.getLogger("berth.server.api")

CONTENT_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="berth"'
LOST_DATABASE = (OperationalError, InterfaceError)


class MethodNotAllowed(BerthError):
    code, status, title = "method-not-allowed", 405, "This address does not know that method"


class UnsupportedMediaType(BerthError):
    code, status, title = "unsupported-media-type", 415, "The body is of a type that is not read here"


class Broken(BerthError):
    code, status, title = "broken", 500, "Berth made a mistake"


def explained(exc: Exception, context: dict[str, Any]) -> Response:
    """What the framework calls for every exception of a view."""
    error = understood_and_logged(exc)
    request = context.get("request")
    document = {**error.to_problem(), "request_id": getattr(request, "request_id", "")}
    return Response(document, error.status, headers=_headers(error, exc), content_type=CONTENT_TYPE)


def understood_and_logged(exc: Exception) -> BerthError:
    """What is our mistake, the caller is told little of: the log knows the rest."""
    error = understood(exc)
    if error.status >= 500:
        logger.error("%s: %s", type(exc).__name__, error.code, exc_info=exc)
    return error


def understood(exc: Exception) -> BerthError:
    """Any exception as one of ours; what we did not foresee says nothing about its inside."""
    if isinstance(exc, BerthError):
        return exc
    if isinstance(exc, drf.APIException):
        return _from_framework(exc)
    if isinstance(exc, Http404):
        return errors.NotFound()
    if isinstance(exc, PermissionDenied):
        return errors.Forbidden()
    if isinstance(exc, RequestDataTooBig):
        return errors.TooLarge()
    if isinstance(exc, SuspiciousOperation):
        return errors.Malformed()
    if isinstance(exc, IntegrityError):
        logger.warning("the database refused a change", exc_info=exc)
        return errors.Conflict(
            "Somebody else changed the same thing at this moment. Read it again and retry."
        )
    if isinstance(exc, LOST_DATABASE):
        return errors.Unavailable("The database cannot be reached. Try again in a moment.", retry_after=5)
    return Broken("The request was not carried out. The log knows more under this request_id.")


@csrf_exempt  # nothing is there to be forged; an answer of Django's own would be a page
def not_found(request: HttpRequest, *args: object, **kwargs: object) -> JsonResponse:
    """The answer to every address under /api/ that no door has."""
    error = errors.NotFound(f"There is nothing at {shown(request.path)}.")
    document = {**error.to_problem(), "request_id": getattr(request, "request_id", "")}
    return JsonResponse(document, status=error.status, content_type=CONTENT_TYPE)


def _from_framework(exc: drf.APIException) -> BerthError:
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
