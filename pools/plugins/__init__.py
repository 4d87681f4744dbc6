"""Public plugin API for pools, workers and clients, without any server code."""

from pools.plugins.base import Function, Operation, Plugin
from pools.plugins.compose import bootstrap_all, decorate_all, transform_all
from pools.plugins.contexts import Hook, HookContexts, hook_contexts
from pools.plugins.errors import HookFailed, PluginError
from pools.plugins.facts import ClientPool, Cluster, InstanceInfo
from pools.plugins.image import Image, Index

__all__ = [
    "ClientPool",
    "Cluster",
    "Function",
    "Hook",
    "HookContexts",
    "HookFailed",
    "Image",
    "Index",
    "InstanceInfo",
    "Operation",
    "Plugin",
    "PluginError",
    "bootstrap_all",
    "decorate_all",
    "hook_contexts",
    "transform_all",
]  # fmt: skip
