"""The plugins of a session: those of the pool and those of the client."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pools.plugins.base import Plugin
from pools.plugins.declared import Declared
from pools.plugins.registry import available

log = logging.getLogger(__name__)


def of_pool(declared: Iterable[Mapping[str, Any]]) -> tuple[Plugin, ...]:
    """Those a pool declares, in its order. One that is not installed here is left out, with a warning: its
    package is needed where its hooks run, and may be missing where it has none."""
    found = []
    for entry in declared:
        name = entry["name"]
        if name not in available():
            log.warning("the pool's plugin %s is not installed here", name)
            continue
        secrets = tuple(entry.get("secrets_set") or ())
        found.append(Declared(name, entry.get("parameters") or {}).plugin(secrets))
    return tuple(found)


def together(pools: Iterable[Plugin], given: Iterable[Plugin]) -> tuple[Plugin, ...]:
    """The pool's first; what the client gives under the same name takes the place of the pool's."""
    own = {plugin.name: plugin for plugin in given}
    first = [own.pop(plugin.name, plugin) for plugin in pools]
    return (*first, *own.values())
