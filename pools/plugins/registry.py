"""Available plugins: built in or from installed packages."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pools.plugins import builtin
from pools.plugins.base import Plugin
from pools.plugins.errors import PluginError, error_text
from pools.plugins.parameters import Schema, schema_of, secrets_of

GROUP = "berth.plugins"
# Passed to a plugin function in the place of a secret.
SECRET_PLACEHOLDER = "(kept as a secret)"  # noqa: S105
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


@dataclass(frozen=True)
class RegisteredPlugin:
    """A plugin that pools can name. `source` is the package that brought it, empty for ours."""

    name: str
    make: Callable[..., Plugin]
    schema: Schema
    source: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The first sentence of its function's docstring."""
        said = (self.make.__doc__ or "").strip()
        return said.partition("\n")[0]

    def build(self, parameters: Mapping[str, Any]) -> Plugin:
        """Secrets are never among the parameters: the plugin is only told that they are there."""
        try:
            plugin = self.make(**parameters)
        except Exception as error:
            raise PluginError(f"the plugin {self.name} cannot be created: {error_text(error)}") from error
        if not isinstance(plugin, Plugin) or plugin.name != self.name:
            raise PluginError(f"the plugin {self.name} cannot be created: it returned {plugin!r:.80}")
        return plugin


@cache
def available() -> Mapping[str, RegisteredPlugin]:
    """By name. What a package brings under a name of ours, or cannot be loaded, is not there; `refused`
    says why."""
    found = {name: _known(name, make) for name, make in builtin.ALL.items()}
    found |= {
        entry.name: loaded for entry in _entries() if isinstance(loaded := _load(entry), RegisteredPlugin)
    }
    return found


def unavailable() -> Mapping[str, str]:
    """Plugins of installed packages that are not there, each with the reason."""
    return {entry.name: why for entry in _entries() if isinstance(why := _load(entry), str)}


def _entries() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))


def _load(entry: EntryPoint) -> RegisteredPlugin | str:
    source = entry.dist.name if entry.dist else entry.value
    if entry.name in builtin.ALL:
        return f"{source}: Berth has a built-in plugin of this name"
    if not _NAME.fullmatch(entry.name):
        return f"{source}: plugin names consist of lower-case letters, digits, - and _"
    try:
        return _known(entry.name, entry.load(), source)
    except Exception as error:  # whatever somebody else's package does must not stop us
        return f"{source} cannot be loaded: {error_text(error)}"


def _known(name: str, make: Callable[..., Plugin], source: str = "") -> RegisteredPlugin:
    schema = schema_of(make)
    return RegisteredPlugin(name, make, schema, source, secrets_of(schema))
