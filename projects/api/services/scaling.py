"""REST endpoints for service scale requests."""

from collections.abc import Sequence
from typing import ClassVar

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.problems import Problem, format_value
from berth.core.wording.words import format_count
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, filter_by, page
from berth.server.api.requests import NoBody, parse_body, parse_query
from berth.server.api.schema import operation
from projects.api.services import scaling_schemas as schemas
from projects.api.services.views import ServiceView
from projects.models import ScaleRequest
from projects.queries.services import find_request, select_requests
from projects.services.inference import requests
from projects.services.inference.addresses import addresses, new_addresses
from projects.services.inference.requests import AcceptedRequest
from projects.services.inference.rules import InvalidScaleRequest, ScaleParameters

NEWEST_FIRST = Order("newest", ("created_at", "id"), is_descending=True)


class ScaleRequestView(ServiceView):
    direction: ClassVar[str]

    def list_requests(self, request: Request, service: str) -> Response:
        query = parse_query(request, schemas.ScaleRequestsQuery)
        rows = _filter_requests(select_requests(self.service(service), self.direction), query)
        return Response(page(rows, query, NEWEST_FIRST, schemas.serialize_scale_requests))

    def get_request(self, request: Request, service: str, request_id: str) -> ScaleRequest:
        return find_request(self.service(service), self.direction, request_id)


class ScaleOuts(ScaleRequestView):
    direction = "scale_out"

    @operation(
        "List a service's scale-outs",
        query=schemas.ScaleRequestsQuery,
        page=schemas.ScaleRequestResponse,
    )
    def get(self, request: Request, service: str) -> Response:
        return self.list_requests(request, service)

    @operation("Scale out", body=schemas.ScaleOutBody, response=schemas.ScaleAcceptedResponse)
    @idempotent
    def post(self, request: Request, service: str) -> Response:
        body = parse_body(request, schemas.ScaleOutBody)
        _check_mode(body)
        parameters = _scale_parameters(body, new_addresses(body.engine_urls))
        return _accepted_response(
            requests.scale_out(actor=self.actor, service=self.service(service), parameters=parameters)
        )


class ScaleOutDetail(ScaleRequestView):
    direction = "scale_out"

    @operation("Get a scale-out", response=schemas.ScaleRequestResponse)
    def get(self, request: Request, service: str, request_id: str) -> Response:
        return Response(schemas.serialize_scale_request(self.get_request(request, service, request_id)))


class CancelScaleOut(ScaleRequestView):
    direction = "scale_out"

    @operation("Cancel a scale-out", response=schemas.ScaleRequestResponse)
    @idempotent
    def post(self, request: Request, service: str, request_id: str) -> Response:
        parse_body(request, NoBody)
        row = self.get_request(request, service, request_id)
        requests.cancel(actor=self.actor, request=row)
        return Response(schemas.serialize_scale_request(find_request(row.service, "scale_out", request_id)))


class CancelScaleOuts(ServiceView):
    @operation(
        "Cancel scale-outs, or list the ones that would be cancelled",
        body=schemas.CancelScaleOutsBody,
        response=schemas.ScaleOutCancellationResponse,
    )
    @idempotent
    def post(self, request: Request, service: str) -> Response:
        body = parse_body(request, schemas.CancelScaleOutsBody)
        cancelled = requests.cancel_many(
            actor=self.actor, service=self.service(service), dry_run=body.dry_run,
            status_filter=(body.status_filter,) if body.status_filter else (),
        )  # fmt: skip
        return Response(_cancelled_response(cancelled, body))


class ScaleIns(ScaleRequestView):
    direction = "scale_in"

    @operation(
        "List a service's scale-ins", query=schemas.ScaleRequestsQuery, page=schemas.ScaleRequestResponse
    )
    def get(self, request: Request, service: str) -> Response:
        return self.list_requests(request, service)

    @operation("Scale in", body=schemas.ScaleInBody, response=schemas.ScaleAcceptedResponse)
    @idempotent
    def post(self, request: Request, service: str) -> Response:
        body = parse_body(request, schemas.ScaleInBody)
        parameters = _scale_parameters(body, addresses(body.engine_urls), force=body.force)
        accepted = requests.scale_in(
            actor=self.actor, service=self.service(service), parameters=parameters, dry_run=body.dry_run
        )
        return _accepted_response(accepted)


class ScaleInDetail(ScaleRequestView):
    direction = "scale_in"

    @operation("Get a scale-in", response=schemas.ScaleRequestResponse)
    def get(self, request: Request, service: str, request_id: str) -> Response:
        return Response(schemas.serialize_scale_request(self.get_request(request, service, request_id)))


def _filter_requests(
    rows: QuerySet[ScaleRequest], query: schemas.ScaleRequestsQuery
) -> QuerySet[ScaleRequest]:
    return filter_by(rows, status=query.status, model_name=query.model_name)


def _scale_parameters(
    body: schemas.ScaleBody, urls: tuple[str, ...], *, force: bool = False
) -> ScaleParameters:
    return ScaleParameters(
        num_replicas=body.num_replicas, urls=urls, model_name=body.model_name,
        timeout_secs=body.timeout_secs, force=force,
    )  # fmt: skip


def _check_mode(body: schemas.ScaleOutBody) -> None:
    implied = "external" if body.engine_urls and body.num_replicas == 0 else "managed"
    named = {"ray_native": "managed"}.get(body.mode or implied, body.mode or implied)
    if named != implied:
        allowed = "managed (or ray_native) with num_replicas, external with engine_urls"
        raise InvalidScaleRequest(
            [Problem("mode", "contradicts the other fields", format_value(body.mode), allowed)]
        )


def _accepted_response(accepted: AcceptedRequest) -> Response:
    return Response(
        schemas.ScaleAcceptedResponse(
            request_id=accepted.request.pk if accepted.request else None, status=accepted.status,  # type: ignore[arg-type]
            message=accepted.message, engine_ids=[engine.name for engine in accepted.engines],
            engine_urls=[engine.url for engine in accepted.engines],
        )
    )  # fmt: skip


def _cancelled_response(
    cancelled: Sequence[ScaleRequest], body: schemas.CancelScaleOutsBody
) -> schemas.ScaleOutCancellationResponse:
    word = "Would cancel" if body.dry_run else "Cancelled"
    return schemas.ScaleOutCancellationResponse(
        dry_run=body.dry_run,
        status_filter=body.status_filter,
        count=len(cancelled),
        cancelled=[
            schemas.CancelledScaleOutResponse(
                request_id=row.pk,
                status=row.status,  # type: ignore[arg-type]
            )
            for row in cancelled
        ],
        message=f"{word} {format_count(len(cancelled), 'scale-out')}.",
    )
