"""Find all available plugins, both built-in and from installed packages."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pools.plugins import builtin
from pools.plugins.base import Plugin
from pools.plugins.errors import PluginError, error_text
from pools.plugins.parameters import Schema, parameter_schema, secret_variables

GROUP = "berth.plugins"
# Placeholder that a plugin function receives instead of a secret.
SECRET_PLACEHOLDER = "(stored as a secret)"  # noqa: S105
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


@dataclass(frozen=True)
class RegisteredPlugin:
    """Plugin that pools can use. `source` is the name of its package, or empty for built-in plugins."""

    name: str
    factory: Callable[..., Plugin]
    schema: Schema
    source: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """First line of the plugin function's docstring."""
        text = (self.factory.__doc__ or "").strip()
        return text.partition("\n")[0]

    def build_plugin(self, parameters: Mapping[str, Any]) -> Plugin:
        """Build the plugin. `parameters` has placeholders instead of secrets. Raises PluginError."""
        try:
            plugin = self.factory(**parameters)
        except Exception as error:
            raise PluginError(f"the plugin {self.name} cannot be created: {error_text(error)}") from error
        if not isinstance(plugin, Plugin) or plugin.name != self.name:
            raise PluginError(
                f"the factory of plugin {self.name} returned {plugin!r:.80}; "
                f"it must return a Plugin named {self.name}"
            )
        return plugin


@cache
def available_plugins() -> Mapping[str, RegisteredPlugin]:
    """Return all usable plugins, keyed by name, both built-in and from installed packages."""
    plugins = {name: _register(name, factory) for name, factory in builtin.ALL.items()}
    plugins |= {
        entry.name: loaded
        for entry in _plugin_entries()
        if isinstance(loaded := _load(entry), RegisteredPlugin)
    }
    return plugins


def unavailable_plugins() -> Mapping[str, str]:
    """Return the reasons why plugins of installed packages cannot be used, keyed by plugin name."""
    return {entry.name: reason for entry in _plugin_entries() if isinstance(reason := _load(entry), str)}


def _plugin_entries() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))


def _load(entry: EntryPoint) -> RegisteredPlugin | str:
    source = entry.dist.name if entry.dist else entry.value
    if entry.name in builtin.ALL:
        return f"{source}: Berth has a built-in plugin with this name"
    if not _NAME.fullmatch(entry.name):
        return f"{source}: plugin names consist of lowercase letters, digits, - and _"
    try:
        return _register(entry.name, entry.load(), source)
    except Exception as error:  # a broken package must not affect Berth
        return f"{source} cannot be loaded: {error_text(error)}"


def _register(name: str, factory: Callable[..., Plugin], source: str = "") -> RegisteredPlugin:
    schema = parameter_schema(factory)
    return RegisteredPlugin(name, factory, schema, source, secret_variables(schema))
