"""Clients for the supported routers, one module each."""

from projects.serving.routers.sglang import SGLangRouter
from projects.serving.routers.static import StaticRouter

__all__ = ["SGLangRouter", "StaticRouter"]
