"""Adapters for the supported inference engines, one module each."""

from projects.serving.base import EngineAdapter
from projects.serving.engines.openai import OpenAIEngines
from projects.serving.engines.sglang import SGLangEngines
from projects.serving.http_client import HttpClient

KINDS = ("sglang", "openai")


def engine_adapter(kind: str, http_client: HttpClient) -> EngineAdapter:
    """Return the adapter for a kind of inference engine. Raises KeyError if the kind is not in KINDS."""
    adapters: dict[str, type[SGLangEngines | OpenAIEngines]] = {
        SGLangEngines.kind: SGLangEngines,
        OpenAIEngines.kind: OpenAIEngines,
    }
    return adapters[kind](http_client)
