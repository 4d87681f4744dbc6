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
from pools.api.pools import PoolView
from pools.plugins.registry import available, unavailable


class KnownPlugin(Answer):
    name: str
    summary: str
    source: str = Field(description="Package that provides the plugin; empty for built-in plugins.")
    parameters: dict[str, Any] = Field(description="A JSON schema.")


class PluginsAnswer(Answer):
    plugins: list[KnownPlugin]
    refused: dict[str, str] | None = Field(
        description="Unusable plugins with the reason; null unless you are a platform admin."
    )


class EnvironmentAnswer(Answer):
    digest: str
    image: dict[str, Any] = Field(description="Image after all plugins; secrets are variable names.")
    phases: list[str]
    script: str = Field(description="Script that each node runs at boot.")
    created_at: datetime


class Plugins(ApiView):
    @operation("List plugins with their parameters", answer=PluginsAnswer)
    def get(self, request: Request) -> Response:
        no_query(request)
        plugins = [
            KnownPlugin(
                name=each.name, summary=each.summary, source=each.source, parameters=dict(each.schema)
            )
            for _, each in sorted(available().items())
        ]
        reasons = dict(unavailable()) if self.allowed("administer") else None
        return Response(PluginsAnswer(plugins=plugins, refused=reasons))


class PoolEnvironment(PoolView):
    @operation("Get the environment that a pool's plugins install, and its script", answer=EnvironmentAnswer)
    def get(self, request: Request, name: str) -> Response:
        no_query(request)
        built = self.get_pool(name).built_environment
        if built is None:
            raise NotFound(f"Pool {name} declares no environment.")
        return Response(
            EnvironmentAnswer(
                digest=built.digest, image=built.image, phases=built.phases, script=built.script,
                created_at=built.created_at,
            )
        )  # fmt: skip
