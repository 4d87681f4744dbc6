"""The plugins that a program passes to its session."""

from collections import Counter
from collections.abc import Iterable

from berth.client.errors import SessionError
from pools.plugins.base import Plugin
from pools.plugins.errors import PluginError
from pools.plugins.registry import available


def plugins_of(given: Iterable[Plugin | str]) -> tuple[Plugin, ...]:
    """In the order they were given; a name stands for the plugin of that name as it comes.

    Raises SessionError for a name that is not known, and for two plugins of one name.
    """
    found = tuple(_made(one) if isinstance(one, str) else one for one in given)
    for plugin in found:
        if not isinstance(plugin, Plugin):
            raise SessionError(f"{plugin!r:.80} is no plugin: give names, or what Plugin.create(...) made.")
    twice = [name for name, times in Counter(plugin.name for plugin in found).items() if times > 1]
    if twice:
        raise SessionError(f"The plugin {twice[0]} is given twice.")
    return found


def _made(name: str) -> Plugin:
    if name not in available():
        raise SessionError(f"There is no plugin named {name!r}; there are {', '.join(sorted(available()))}.")
    try:
        return available()[name].build({})
    except PluginError as error:
        raise SessionError(str(error)) from error
