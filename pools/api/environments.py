"""REST endpoints for plugins and pool environments."""

from datetime import datetime
from typing import Any

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import NotFound
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools.api.pools import PoolView
from pools.plugins.registry import available_plugins, unavailable_plugins


class AvailablePlugin(ResponseModel):
    name: str
    summary: str
    source: str = Field(description="Package that provides the plugin; empty for built-in plugins.")
    parameters: dict[str, Any] = Field(description="JSON schema of the parameters.")


class PluginsResponse(ResponseModel):
    plugins: list[AvailablePlugin]
    rejected: dict[str, str] | None = Field(
        description="Reason for each unusable plugin, by name; null unless you are a platform admin."
    )


class PoolEnvironmentResponse(ResponseModel):
    """Environment that a pool's plugins install."""

    digest: str
    image: dict[str, Any] = Field(
        description="Image after all plugins; secrets appear only as variable names."
    )
    phases: list[str]
    script: str = Field(description="Script that each node runs at boot.")
    created_at: datetime


class Plugins(ApiView):
    @operation("List plugins with their parameters", response=PluginsResponse)
    def get(self, request: Request) -> Response:
        plugins = [
            AvailablePlugin(
                name=plugin.name, summary=plugin.summary, source=plugin.source, parameters=dict(plugin.schema)
            )
            for _, plugin in sorted(available_plugins().items())
        ]
        reasons = dict(unavailable_plugins()) if self.is_allowed("administer") else None
        return Response(PluginsResponse(plugins=plugins, rejected=reasons))


class PoolEnvironment(PoolView):
    @operation("Get a pool's environment and the script that installs it", response=PoolEnvironmentResponse)
    def get(self, request: Request, name: str) -> Response:
        environment = self.get_pool(name).built_environment
        if environment is None:
            raise NotFound(
                f"Pool {name} declares no environment. "
                f"Add plugins with `berth pool edit {name} --plugin NAME`."
            )
        return Response(PoolEnvironmentResponse.from_row(environment))
