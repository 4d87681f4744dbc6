"""REST endpoints of scale requests of services."""

from collections.abc import Sequence
from typing import ClassVar

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.problems import Problem, shown
from berth.core.words import counted
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, page
from berth.server.api.requests import NoBody, no_query, parse_body, parse_query
from berth.server.api.schema import operation
from projects.api.services import scaling_schemas as shapes
from projects.api.services.views import ServiceView
from projects.models import ScaleRequest
from projects.service_selectors import find_request, requests_of
from projects.services.inference import requests
from projects.services.inference.addresses import addresses, new_addresses
from projects.services.inference.requests import Accepted
from projects.services.inference.rules import BadScaling, ScaleParameters

NEWEST_FIRST = Order("newest", ("created_at", "id"), down=True)


class Requests(ServiceView):
    direction: ClassVar[str]

    def listed(self, request: Request, service: str) -> Response:
        query = parse_query(request, shapes.ScaleRequestsQuery)
        rows = _filtered(requests_of(self.service(service), self.direction), query)
        return Response(page(rows, query, NEWEST_FIRST, shapes.presented))

    def one(self, request: Request, service: str, request_id: str) -> ScaleRequest:
        no_query(request)
        return find_request(self.service(service), self.direction, request_id)


class ScaleOuts(Requests):
    direction = "scale_out"

    @operation(
        "List the scale-outs of a service", query=shapes.ScaleRequestsQuery, page=shapes.ScaleRequestAnswer
    )
    def get(self, request: Request, service: str) -> Response:
        return self.listed(request, service)

    @operation("Scale out", body=shapes.ScaleOutBody, answer=shapes.ScaleAcceptedAnswer)
    @idempotent
    def post(self, request: Request, service: str) -> Response:
        no_query(request)
        body = parse_body(request, shapes.ScaleOutBody)
        _check_mode(body)
        parameters = _parameters(body, new_addresses(body.engine_urls))
        return _accepted(
            requests.scale_out(acting=self.acting, service=self.service(service), parameters=parameters)
        )


class OneScaleOut(Requests):
    direction = "scale_out"

    @operation("Get a scale-out", answer=shapes.ScaleRequestAnswer)
    def get(self, request: Request, service: str, request_id: str) -> Response:
        return Response(shapes.answer(self.one(request, service, request_id)))


class CancelScaleOut(Requests):
    direction = "scale_out"

    @operation("Cancel a scale-out", answer=shapes.ScaleRequestAnswer)
    @idempotent
    def post(self, request: Request, service: str, request_id: str) -> Response:
        parse_body(request, NoBody)
        row = self.one(request, service, request_id)
        requests.cancel(acting=self.acting, request=row)
        return Response(shapes.answer(find_request(row.service, "scale_out", request_id)))


class CancelScaleOuts(ServiceView):
    @operation(
        "Cancel scale-outs, or list which would be cancelled",
        body=shapes.CancelScaleOutsBody,
        answer=shapes.CancelledScaleOutsAnswer,
    )
    @idempotent
    def post(self, request: Request, service: str) -> Response:
        no_query(request)
        body = parse_body(request, shapes.CancelScaleOutsBody)
        cancelled = requests.cancel_many(
            acting=self.acting, service=self.service(service), dry_run=body.dry_run,
            status_filter=(body.status_filter,) if body.status_filter else (),
        )  # fmt: skip
        return Response(_cancelled_answer(cancelled, body))


class ScaleIns(Requests):
    direction = "scale_in"

    @operation(
        "List the scale-ins of a service", query=shapes.ScaleRequestsQuery, page=shapes.ScaleRequestAnswer
    )
    def get(self, request: Request, service: str) -> Response:
        return self.listed(request, service)

    @operation("Scale in", body=shapes.ScaleInBody, answer=shapes.ScaleAcceptedAnswer)
    @idempotent
    def post(self, request: Request, service: str) -> Response:
        no_query(request)
        body = parse_body(request, shapes.ScaleInBody)
        parameters = _parameters(body, addresses(body.engine_urls), force=body.force)
        accepted = requests.scale_in(
            acting=self.acting, service=self.service(service), parameters=parameters, dry_run=body.dry_run
        )
        return _accepted(accepted)


class OneScaleIn(Requests):
    direction = "scale_in"

    @operation("Get a scale-in", answer=shapes.ScaleRequestAnswer)
    def get(self, request: Request, service: str, request_id: str) -> Response:
        return Response(shapes.answer(self.one(request, service, request_id)))


def _filtered(rows: QuerySet[ScaleRequest], query: shapes.ScaleRequestsQuery) -> QuerySet[ScaleRequest]:
    if query.status is not None:
        rows = rows.filter(status=query.status)
    return rows if query.model_name is None else rows.filter(model_name=query.model_name)


def _parameters(body: shapes.ScaleBody, urls: tuple[str, ...], *, force: bool = False) -> ScaleParameters:
    return ScaleParameters(
        num_replicas=body.num_replicas, urls=urls, model_name=body.model_name,
        timeout_secs=body.timeout_secs, force=force,
    )  # fmt: skip


def _check_mode(body: shapes.ScaleOutBody) -> None:
    implied = "external" if body.engine_urls and body.num_replicas == 0 else "managed"
    named = {"ray_native": "managed"}.get(body.mode or implied, body.mode or implied)
    if named != implied:
        allowed = "managed (or ray_native) with num_replicas, external with engine_urls"
        raise BadScaling([Problem("mode", "contradicts the other fields", shown(body.mode), allowed)])


def _accepted(accepted: Accepted) -> Response:
    return Response(
        shapes.ScaleAcceptedAnswer(
            request_id=accepted.request.pk if accepted.request else None, status=accepted.status,  # type: ignore[arg-type]
            message=accepted.message, engine_ids=[engine.name for engine in accepted.engines],
            engine_urls=[engine.url for engine in accepted.engines],
        )
    )  # fmt: skip


def _cancelled_answer(
    cancelled: Sequence[ScaleRequest], body: shapes.CancelScaleOutsBody
) -> shapes.CancelledScaleOutsAnswer:
    word = "Would cancel" if body.dry_run else "Cancelled"
    return shapes.CancelledScaleOutsAnswer(
        dry_run=body.dry_run, status_filter=body.status_filter, count=len(cancelled),
        cancelled=[shapes.CancelledScaleOutAnswer(request_id=row.pk, status=row.status) for row in cancelled],  # type: ignore[arg-type]
        message=f"{word} {counted(len(cancelled), 'scale-out')}.",
    )  # fmt: skip
