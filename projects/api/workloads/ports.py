"""REST endpoint that issues one-time links to workload ports."""

from datetime import datetime
from uuid import UUID

from django.http import HttpResponse
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.idempotency import repeatable
from berth.server.api.requests import NoBody, parse_body
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.port_proxy.links import create_port_link


class PortLinkResponse(ResponseModel):
    """One-time link that opens a port in a browser, if it is used before `expires_at`."""

    url: str
    expires_at: datetime


class CreatePortLink(ApiView):
    @operation(
        "Create a one-time link to a port of a running workload", response=PortLinkResponse, status=201
    )
    @repeatable
    def post(self, request: Request, workload_id: UUID, port: str) -> HttpResponse:
        parse_body(request, NoBody)
        workload = selectors.find_workload(self.actor, workload_id)
        url, expires_at = create_port_link(actor=self.actor, workload=workload, port=port, at=timezone.now())
        return Response(PortLinkResponse(url=url, expires_at=expires_at), 201)
