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
# Passed to a plugin function in place of a secret.
SECRET_PLACEHOLDER = "(kept as a secret)"  # noqa: S105
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


@dataclass(frozen=True)
class RegisteredPlugin:
    """A plugin that pools can use; `source` is the package that provides it, empty for built-in ones."""

    name: str
    make: Callable[..., Plugin]
    schema: Schema
    source: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """First line of the function's docstring."""
        text = (self.make.__doc__ or "").strip()
        return text.partition("\n")[0]

    def build(self, parameters: Mapping[str, Any]) -> Plugin:
        """Build the plugin from parameters with placeholders instead of secrets. Raises PluginError."""
        try:
            plugin = self.make(**parameters)
        except Exception as error:
            raise PluginError(f"the plugin {self.name} cannot be created: {error_text(error)}") from error
        if not isinstance(plugin, Plugin) or plugin.name != self.name:
            raise PluginError(f"the plugin {self.name} cannot be created: it returned {plugin!r:.80}")
        return plugin


@cache
def available() -> Mapping[str, RegisteredPlugin]:
    """Return plugins by name, without those of packages that `unavailable` lists."""
    plugins = {name: _make_registered(name, make) for name, make in builtin.ALL.items()}
    plugins |= {
        entry.name: loaded for entry in _entries() if isinstance(loaded := _load(entry), RegisteredPlugin)
    }
    return plugins


def unavailable() -> Mapping[str, str]:
    """Return the reason why each unusable plugin of an installed package cannot be used, by plugin name."""
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
        return _make_registered(entry.name, entry.load(), source)
    except Exception as error:  # another package must not break Berth
        return f"{source} cannot be loaded: {error_text(error)}"


def _make_registered(name: str, make: Callable[..., Plugin], source: str = "") -> RegisteredPlugin:
    schema = schema_of(make)
    return RegisteredPlugin(name, make, schema, source, secrets_of(schema))
