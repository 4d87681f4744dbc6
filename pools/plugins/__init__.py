"""Plugins for pools, workers and clients, without any server code."""

from pools.plugins.base import Function, Operation, Plugin
from pools.plugins.compose import bootstrap_all, decorate_all, transform_all
from pools.plugins.entered import Entered, Hook, entered
from pools.plugins.errors import HookFailed, PluginError
from pools.plugins.facts import ClientPool, Cluster, InstanceInfo
from pools.plugins.image import Image, Index

__all__ = [
    "ClientPool", "Cluster", "Entered", "Function", "Hook", "HookFailed", "Image", "Index", "InstanceInfo",
    "Operation", "Plugin", "PluginError", "bootstrap_all", "decorate_all", "entered", "transform_all",
]  # fmt: skip
