"""The plugins that a program passes to its session."""

from collections import Counter
from collections.abc import Iterable

from berth.client.errors import SessionError
from pools.plugins.base import Plugin
from pools.plugins.errors import PluginError
from pools.plugins.registry import available


def plugins_of(choices: Iterable[Plugin | str]) -> tuple[Plugin, ...]:
    """Return the plugins in order; a name stands for the plugin with its default parameters.

    Raises SessionError for an unknown name, and for two plugins with one name.
    """
    plugins = tuple(_made(one) if isinstance(one, str) else one for one in choices)
    for plugin in plugins:
        if not isinstance(plugin, Plugin):
            raise SessionError(
                f"{plugin!r:.80} is not a plugin. Pass names, or results of Plugin.create(...)."
            )
    twice = [name for name, times in Counter(plugin.name for plugin in plugins).items() if times > 1]
    if twice:
        raise SessionError(f"The plugin {twice[0]} is set twice.")
    return plugins


def _made(name: str) -> Plugin:
    if name not in available():
        raise SessionError(f"There is no plugin named {name!r}; there are {', '.join(sorted(available()))}.")
    try:
        return available()[name].build({})
    except PluginError as error:
        raise SessionError(str(error)) from error
