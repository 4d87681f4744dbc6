"""REST endpoints of plugins and of a pool's environment."""

from datetime import datetime
from typing import Any

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import NotFound
from berth.server.api.requests import no_query
from berth.server.api.responses import Answer
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools.api.pools import PoolDoor
from pools.plugins.registry import available, unavailable


class KnownPlugin(Answer):
    name: str
    summary: str
    source: str = Field(description="The package that brings it; empty for Berth's own.")
    parameters: dict[str, Any] = Field(description="A JSON schema.")


class PluginsAnswer(Answer):
    plugins: list[KnownPlugin]
    refused: dict[str, str] | None = Field(
        description="Plugins of installed packages that cannot be used, with why; null unless you run it."
    )


class EnvironmentAnswer(Answer):
    digest: str
    image: dict[str, Any] = Field(description="After all plugins; secrets are names of variables.")
    phases: list[str]
    script: str = Field(description="What each node runs when it boots.")
    created_at: datetime


class Plugins(ApiView):
    @operation("The plugins that pools may name, with their parameters", answer=PluginsAnswer)
    def get(self, request: Request) -> Response:
        no_query(request)
        there = [
            KnownPlugin(
                name=each.name, summary=each.summary, source=each.source, parameters=dict(each.schema)
            )
            for _, each in sorted(available().items())
        ]
        why = dict(unavailable()) if self.allowed("administer") else None
        return Response(PluginsAnswer(plugins=there, refused=why))


class PoolEnvironment(PoolDoor):
    @operation("What a pool's plugins come to, and the script that makes it", answer=EnvironmentAnswer)
    def get(self, request: Request, name: str) -> Response:
        no_query(request)
        built = self.found(name).built_environment
        if built is None:
            raise NotFound(f"The pool {name} declares no environment: its nodes are used as they are.")
        return Response(
            EnvironmentAnswer(
                digest=built.digest, image=built.image, phases=built.phases, script=built.script,
                created_at=built.created_at,
            )
        )  # fmt: skip
