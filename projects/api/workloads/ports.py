"""REST endpoint that issues one-time links to workload ports."""

from datetime import datetime
from uuid import UUID

from django.http import HttpResponse
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.idempotency import repeatable
from berth.server.api.requests import NoBody, no_query, parse_body
from berth.server.api.responses import Answer
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.visits.links import link_to


class PortLinkAnswer(Answer):
    url: str
    expires_at: datetime


class LinkToPort(ApiView):
    @operation("Create a one-time link to a port of a running workload", answer=PortLinkAnswer, status=201)
    @repeatable
    def post(self, request: Request, workload_id: UUID, port: str) -> HttpResponse:
        no_query(request)
        parse_body(request, NoBody)
        workload = selectors.find_workload(self.acting, workload_id)
        url, expires_at = link_to(acting=self.acting, workload=workload, port=port, at=timezone.now())
        return Response(PortLinkAnswer(url=url, expires_at=expires_at), 201)
