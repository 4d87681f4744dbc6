"""Plugins of a session: the pool's plugins and the client's plugins."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pools.plugins.base import Plugin
from pools.plugins.declared import DeclaredPlugin
from pools.plugins.registry import available_plugins

log = logging.getLogger(__name__)


def load_pool_plugins(declared: Iterable[Mapping[str, Any]]) -> tuple[Plugin, ...]:
    """Return the plugins that a pool declares, in order.

    A plugin that is not installed here is skipped with a warning.
    """
    plugins = []
    for entry in declared:
        name = entry["name"]
        if name not in available_plugins():
            log.warning("the pool's plugin %s is not installed here", name)
            continue
        secrets = tuple(entry.get("secrets_set") or ())
        plugins.append(DeclaredPlugin(name, entry.get("parameters") or {}).build_plugin(secrets))
    return tuple(plugins)


def merge_plugins(pools: Iterable[Plugin], session: Iterable[Plugin]) -> tuple[Plugin, ...]:
    """Return the pool's plugins, then the session's.

    A session plugin replaces the pool plugin of the same name.
    """
    session_plugins = {plugin.name: plugin for plugin in session}
    pool_plugins = [session_plugins.pop(plugin.name, plugin) for plugin in pools]
    return (*pool_plugins, *session_plugins.values())
