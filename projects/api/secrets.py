"""REST endpoints for projects' secrets. No response contains a value."""

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import NotFound
from berth.core.problems import format_value
from berth.server.api.pagination import page
from berth.server.api.requests import ListQuery, parse_query
from berth.server.api.responses import no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools.api.secrets import (
    BY_NAME,
    SecretBody,
    SecretResponse,
    parse_secret,
    secret_response,
    secret_responses,
    stored_secret_response,
)
from projects import selectors
from projects.models import Project, ProjectSecret
from projects.services.secrets import delete_project_secret, set_project_secret


class ProjectSecrets(ApiView):
    change_scope = "admin"

    @operation("List a project's secrets", query=ListQuery, page=SecretResponse)
    def get(self, request: Request, name: str) -> Response:
        query = parse_query(request, ListQuery)
        rows = ProjectSecret.objects.filter(project=selectors.find_project(self.actor, name))
        return Response(page(rows, query, BY_NAME, secret_responses))


class ProjectSecretDetail(ApiView):
    change_scope = "admin"

    @operation("Get a project's secret without its value", response=SecretResponse)
    def get(self, request: Request, name: str, secret: str) -> Response:
        return Response(secret_response(self._get_secret(name, secret)))

    @operation("Set a project's secret", body=SecretBody, response=SecretResponse, also_status=201)
    def put(self, request: Request, name: str, secret: str) -> Response:
        project = selectors.find_project(self.actor, name)
        self.require("set_secrets", project)
        stored, is_new = set_project_secret(
            actor=self.actor, project=project, name=secret, content=parse_secret(request), at=timezone.now()
        )
        location = f"/api/v1/projects/{project.name}/secrets/{stored.name}"
        return stored_secret_response(stored, location if is_new else "")

    @operation("Delete a project's secret", status=204)
    def delete(self, request: Request, name: str, secret: str) -> Response:
        delete_project_secret(actor=self.actor, secret=self._get_secret(name, secret))
        return no_content()

    def _get_secret(self, name: str, secret: str) -> ProjectSecret:
        project: Project = selectors.find_project(self.actor, name)
        row = ProjectSecret.objects.select_related("project__department").filter(project=project, name=secret)
        stored = row.first()
        if stored is None:
            raise NotFound(f"Project {project.name} has no secret named {format_value(secret)}.")
        return stored
