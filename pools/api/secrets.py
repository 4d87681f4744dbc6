"""REST endpoints for pool secrets, and REST models for all secrets. Responses contain no values."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid, Malformed
from berth.core.not_found import ObjectKind, not_found_error
from berth.core.problems import Problem
from berth.core.spec.values.texts import Text
from berth.db.queries.known_names import NameColumn
from berth.server.api.pagination import Order, page
from berth.server.api.requests import Body, ListQuery, parse_body, parse_query
from berth.server.api.responses import ResponseModel, created_response, no_content
from berth.server.api.schema import operation
from pools.api.pools import PoolView
from pools.models import NodePool, PoolSecret, SecretKind
from pools.models.secret import Secret
from pools.services.secrets import SecretContent, delete_pool_secret, set_pool_secret

BY_NAME = Order("name", ("name", "id"))
LOGIN = ("registry", "username", "password")
S3_KEY = ("access_key_id", "secret_access_key")
OF_POOLS = {"ssh_key", *S3_KEY}  # fields that only pool secrets may have


class SecretBody(Body):
    """Content of a secret: a value for pods, credentials for a container registry, or a key that Berth itself
    uses.
    """

    value: Annotated[str | None, Field(repr=False, description="Text for pods. Cannot be read again.")] = None
    registry: Annotated[
        Text | None,
        Field(description="Host with an optional port and path, such as registry.example.org:5000."),
    ] = None
    username: Text | None = None
    password: Annotated[
        str | None, Field(repr=False, description="Password for the registry. Cannot be read again.")
    ] = None
    ssh_key: Annotated[
        str | None,
        Field(
            repr=False,
            description="OpenSSH private key for signing in to SSH hosts. Only for pools. Cannot "
            "be read again.",
        ),
    ] = None
    access_key_id: Annotated[
        Text | None, Field(description="ID of the access key for volumes in S3. Only for pools.")
    ] = None
    secret_access_key: Annotated[str | None, Field(repr=False, description="Cannot be read again.")] = None


class SecretResponse(ResponseModel):
    name: str
    kind: SecretKind = Field(
        description="`value`: for pods; `registry`: for pulling images; `ssh_key`: for SSH hosts; `s3_key`: "
        "for volumes in S3."
    )
    registry: str | None
    username: str | None = Field(description="Username of a registry, or ID of an S3 access key.")
    version: int = Field(description="Version of the content, incremented with each change.")
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str


class StoredSecretResponse(SecretResponse):
    warnings: list[str] = Field(description="Advice, for example that logs do not mask a short value.")


class PoolSecrets(PoolView):
    @operation("List a pool's secrets", query=ListQuery, page=SecretResponse)
    def get(self, request: Request, name: str) -> Response:
        query = parse_query(request, ListQuery)
        rows = PoolSecret.objects.filter(pool=self.get_pool(name))
        return Response(page(rows, query, BY_NAME, secret_responses))


class PoolSecretDetail(PoolView):
    @operation("Get a pool's secret without its value", response=SecretResponse)
    def get(self, request: Request, name: str, secret: str) -> Response:
        return Response(secret_response(find_pool_secret(self.get_pool(name), secret)))

    @operation("Set a pool's secret", body=SecretBody, response=StoredSecretResponse, also_status=201)
    def put(self, request: Request, name: str, secret: str) -> Response:
        pool = self.get_pool(name)
        self.require("administer")
        content = parse_secret(request, is_pools=True)
        stored, is_new = set_pool_secret(
            actor=self.actor, pool=pool, name=secret, content=content, at=timezone.now()
        )
        location = f"/api/v1/node-pools/{pool.name}/secrets/{stored.name}"
        return stored_secret_response(stored, content, location if is_new else "")

    @operation("Delete a pool's secret", status=204)
    def delete(self, request: Request, name: str, secret: str) -> Response:
        delete_pool_secret(actor=self.actor, secret=find_pool_secret(self.get_pool(name), secret))
        return no_content()


def parse_secret(request: Request, *, is_pools: bool = False) -> SecretContent:
    """Return the secret's content from the request's body. Error messages never contain the values."""
    try:
        body = parse_body(request, SecretBody)
    except Invalid as error:
        raise Invalid([replace(problem, received="") for problem in error.problems]) from None
    except Malformed:
        raise Malformed("The body is neither valid JSON nor valid YAML.") from None
    keys = {name for name, value in body.explicit_values().items() if value is not None}
    if keys == {"value"}:
        return SecretContent(body.value or "")
    if keys == {"ssh_key"} and is_pools:
        return SecretContent(body.ssh_key or "", is_ssh_key=True)
    for name in sorted(keys & OF_POOLS) if not is_pools else ():
        raise Invalid([Problem(name, "is not used by projects", "", "value")])
    if keys and keys <= set(S3_KEY):
        _require_keys(S3_KEY, keys)
        return SecretContent(body.secret_access_key or "", "", body.access_key_id or "", is_s3_key=True)
    if not keys or keys & {"value", *OF_POOLS}:
        allowed = f"either value, or {', '.join(LOGIN)}"
        allowed += f", or ssh_key, or {' and '.join(S3_KEY)}" if is_pools else ""
        raise Invalid(
            [Problem("value", "is missing" if not keys else "conflicts with other keys", "", allowed)]
        )
    _require_keys(LOGIN, keys)
    return SecretContent(body.password or "", body.registry or "", body.username or "")


def _require_keys(names: Sequence[str], keys: Collection[str]) -> None:
    if missing := [name for name in names if name not in keys]:
        raise Invalid([Problem(name, "is missing", "", "text") for name in missing])


def secret_response(secret: Secret) -> SecretResponse:
    return SecretResponse.from_row(secret, registry=secret.registry or None, username=secret.username or None)


def secret_responses(secrets: Sequence[Secret]) -> list[SecretResponse]:
    return [secret_response(secret) for secret in secrets]


def stored_secret_response(secret: Secret, content: SecretContent, location: str) -> Response:
    """Return the response to a PUT request. If an existing secret was replaced, `location` is empty."""
    answer = StoredSecretResponse(**secret_response(secret).model_dump(), warnings=content.warnings)
    return created_response(answer, location) if location else Response(answer)


def find_pool_secret(pool: NodePool, name: str) -> PoolSecret:
    secret = PoolSecret.objects.select_related("pool").filter(pool=pool, name=name).first()
    if secret is None:
        names = NameColumn(PoolSecret.objects.filter(pool=pool)).list()
        raise not_found_error(ObjectKind.POOL_SECRET, name=name, owner=pool.name, visible=names)
    return secret
