"""REST endpoints for project and user secrets, and for the runs that received them.

Responses never contain secret values.
"""

from datetime import datetime
from uuid import UUID

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid, NotFound
from berth.core.not_found import ObjectKind, not_found_error
from berth.core.problems import Problem, format_value
from berth.db.queries.known_names import NameColumn
from berth.server.api.pagination import NEWEST, filter_by, map_rows, page
from berth.server.api.requests import ListQuery, parse_query
from berth.server.api.responses import ResponseModel, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools.api.pools import PoolView
from pools.api.secrets import (
    BY_NAME,
    SecretBody,
    SecretResponse,
    StoredSecretResponse,
    find_pool_secret,
    parse_secret,
    secret_response,
    secret_responses,
    stored_secret_response,
)
from pools.models import NodePool, PluginSecret, SecretKind
from projects import selectors
from projects.actor import Actor
from projects.models import ProjectSecret, SecretUse, UserSecret
from projects.services.secrets import (
    delete_personal_secret,
    delete_project_secret,
    set_personal_secret,
    set_project_secret,
)


class UsesQuery(ListQuery):
    outdated: bool | None = Field(None, description="Whether the run is still using an older version.")


class SecretUseResponse(ResponseModel):
    """Workload run that received a version of the secret."""

    workload: UUID
    name: str
    project: str
    run: int
    version: int
    at: datetime
    outdated: bool = Field(description="The run has not ended, and the secret has changed since.")


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

    @operation("Set a project's secret", body=SecretBody, response=StoredSecretResponse, also_status=201)
    def put(self, request: Request, name: str, secret: str) -> Response:
        project = selectors.find_project(self.actor, name)
        self.require("set_secrets", project)
        content = parse_secret(request)
        stored, is_new = set_project_secret(
            actor=self.actor, project=project, name=secret, content=content, at=timezone.now()
        )
        location = f"/api/v1/projects/{project.name}/secrets/{stored.name}"
        return stored_secret_response(stored, content, location if is_new else "")

    @operation("Delete a project's secret", status=204)
    def delete(self, request: Request, name: str, secret: str) -> Response:
        delete_project_secret(actor=self.actor, secret=self._get_secret(name, secret))
        return no_content()

    def _get_secret(self, name: str, secret: str) -> ProjectSecret:
        return _find_project_secret(self.actor, name, secret)


class ProjectSecretUses(ApiView):
    @operation("List the runs that received a project's secret", query=UsesQuery, page=SecretUseResponse)
    def get(self, request: Request, name: str, secret: str) -> Response:
        return _secret_uses_page(self.actor, request, _find_project_secret(self.actor, name, secret))


class PoolSecretUses(PoolView):
    # Plugin secrets are named PLUGIN.PARAMETER.
    @operation("List the visible runs that received a pool's secret", query=UsesQuery, page=SecretUseResponse)
    def get(self, request: Request, name: str, secret: str) -> Response:
        pool = self.get_pool(name)
        if "." in secret:
            return _secret_uses_page(self.actor, request, _find_plugin_secret(pool, secret))
        return _secret_uses_page(self.actor, request, find_pool_secret(pool, secret))


class PersonalSecrets(ApiView):
    @operation("List your personal secrets", query=ListQuery, page=SecretResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, ListQuery)
        return Response(page(selectors.personal_secrets(self.actor), query, BY_NAME, secret_responses))


class PersonalSecretDetail(ApiView):
    @operation("Get a personal secret without its value", response=SecretResponse)
    def get(self, request: Request, secret: str) -> Response:
        return Response(secret_response(_find_personal_secret(self.actor, secret)))

    @operation("Set a personal secret", body=SecretBody, response=StoredSecretResponse, also_status=201)
    def put(self, request: Request, secret: str) -> Response:
        content = parse_secret(request)
        if content.kind != SecretKind.VALUE:
            raise Invalid([Problem("registry", "is not used by personal secrets", "", "value")])
        stored, is_new = set_personal_secret(
            actor=self.actor, name=secret, content=content, at=timezone.now()
        )
        location = f"/api/v1/secrets/{stored.name}"
        return stored_secret_response(stored, content, location if is_new else "")

    @operation("Delete a personal secret", status=204)
    def delete(self, request: Request, secret: str) -> Response:
        delete_personal_secret(actor=self.actor, secret=_find_personal_secret(self.actor, secret))
        return no_content()


class PersonalSecretUses(ApiView):
    @operation("List the runs that received a personal secret", query=UsesQuery, page=SecretUseResponse)
    def get(self, request: Request, secret: str) -> Response:
        return _secret_uses_page(self.actor, request, _find_personal_secret(self.actor, secret))


def _find_personal_secret(actor: Actor, name: str) -> UserSecret:
    stored = selectors.personal_secrets(actor).filter(name=name).first()
    if stored is None:
        names = NameColumn(selectors.personal_secrets(actor)).list()
        raise not_found_error(ObjectKind.PERSONAL_SECRET, name=name, visible=names)
    return stored


def _find_plugin_secret(pool: NodePool, name: str) -> PluginSecret:
    plugin, _, parameter = name.partition(".")
    stored = PluginSecret.objects.select_related("pool").filter(pool=pool, plugin=plugin, parameter=parameter)
    if (secret := stored.first()) is None:
        raise NotFound(
            f"Pool {pool.name} has no plugin secret named {format_value(name)}. Specify an existing "
            f"secret as PLUGIN.PARAMETER. To list them, run `berth secret list --pool {pool.name}`."
        )
    return secret


def _find_project_secret(actor: Actor, project_name: str, name: str) -> ProjectSecret:
    project = selectors.find_project(actor, project_name)
    row = ProjectSecret.objects.select_related("project__department").filter(project=project, name=name)
    stored = row.first()
    if stored is None:
        names = NameColumn(ProjectSecret.objects.filter(project=project)).list()
        raise not_found_error(ObjectKind.PROJECT_SECRET, name=name, owner=project.name, visible=names)
    return stored


def _secret_uses_page(actor: Actor, request: Request, secret: selectors.RecordedSecret) -> Response:
    query = parse_query(request, UsesQuery)
    rows = filter_by(selectors.secret_uses(actor, secret), is_outdated=query.outdated)
    return Response(page(rows, query, NEWEST, map_rows(_secret_use_response)))


def _secret_use_response(use: SecretUse) -> SecretUseResponse:
    return SecretUseResponse(
        workload=use.workload_id,
        name=use.workload.name,
        project=use.workload.project.name,
        run=use.run,
        version=use.version,
        at=use.at,
        outdated=use.is_outdated,  # type: ignore[attr-defined]
    )
