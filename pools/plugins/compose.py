"""Combine several plugins' hooks: transforms and operations in order, and decorators by nesting."""

from collections.abc import Iterable
from dataclasses import replace

from pools.plugins.base import Function, Operation, Plugin
from pools.plugins.errors import HookFailed, error_text
from pools.plugins.facts import Cluster
from pools.plugins.image import Image


def transform_all(plugins: Iterable[Plugin], image: Image, cluster: Cluster) -> Image:
    """Apply all plugins' transforms to an environment's `Image`, in order. Raises HookFailed if one fails."""
    for plugin in plugins:
        if plugin.transform is None:
            continue
        try:
            image = plugin.transform(image, cluster)
        except Exception as error:
            raise HookFailed(plugin.name, "transform", error_text(error)) from error
        if not isinstance(image, Image):
            raise HookFailed(plugin.name, "transform", f"returned {type(image).__name__} instead of Image")
    return image


def bootstrap_all(plugins: Iterable[Plugin], cluster: Cluster) -> tuple[Operation, ...]:
    """Return all plugins' operations. An operation's default title is the name of its plugin. Raises
    HookFailed.
    """
    operations: list[Operation] = []
    for plugin in plugins:
        if plugin.bootstrap is None:
            continue
        try:
            returned = tuple(plugin.bootstrap(cluster))
        except Exception as error:
            raise HookFailed(plugin.name, "bootstrap", error_text(error)) from error
        for operation in returned:
            if not isinstance(operation, Operation):
                raise HookFailed(
                    plugin.name, "bootstrap", f"returned {type(operation).__name__} instead of Operation"
                )
            operations.append(operation if operation.title else replace(operation, title=plugin.name))
    return tuple(operations)


def decorate_all(plugins: Iterable[Plugin], function: Function) -> Function:
    """Apply all plugins' decorators to a function, the first one outermost. Raises HookFailed."""
    for plugin in reversed(tuple(plugins)):
        if plugin.decorate is None:
            continue
        try:
            function = plugin.decorate(function)
        except Exception as error:
            raise HookFailed(plugin.name, "decorate", error_text(error)) from error
        if not callable(function):
            raise HookFailed(
                plugin.name, "decorate", f"returned {type(function).__name__} instead of a function"
            )
    return function
