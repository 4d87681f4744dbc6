"""Resolve the plugins that a program passes to a session."""

from collections import Counter
from collections.abc import Iterable

from berth.client.errors import SessionError
from pools.plugins.base import Plugin
from pools.plugins.errors import PluginError
from pools.plugins.registry import available_plugins


def resolve_plugins(choices: Iterable[Plugin | str]) -> tuple[Plugin, ...]:
    """Return the plugins in order. A name stands for the plugin with default parameters.

    Raises SessionError for an unknown or repeated name.
    """
    plugins = tuple(_build_plugin(choice) if isinstance(choice, str) else choice for choice in choices)
    for plugin in plugins:
        if not isinstance(plugin, Plugin):
            raise SessionError(
                f"{plugin!r:.80} is not a plugin. Pass plugin names or results of Plugin.create(...)."
            )
    duplicates = [name for name, count in Counter(plugin.name for plugin in plugins).items() if count > 1]
    if duplicates:
        raise SessionError(f"The plugin {duplicates[0]} is listed twice. Remove one of the entries.")
    return plugins


def _build_plugin(name: str) -> Plugin:
    if name not in available_plugins():
        raise SessionError(
            f"There is no plugin named {name!r}. Available: {', '.join(sorted(available_plugins()))}."
        )
    try:
        return available_plugins()[name].build_plugin({})
    except PluginError as error:
        raise SessionError(str(error)) from error
