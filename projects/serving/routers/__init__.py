"""Supported routers, one module each."""

from projects.serving.routers.sglang import SGLangRouter
from projects.serving.routers.static import StaticList

__all__ = ["SGLangRouter", "StaticList"]
