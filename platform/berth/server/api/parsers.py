"""Parse JSON and YAML bodies of bounded size and reject ambiguous ones."""

import json
import re
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from django.conf import settings
from rest_framework.parsers import BaseParser

from berth.core.errors import Malformed, TooLarge
from berth.core.frames import CONTENT_TYPE, unpacked
from berth.documents.strict import TOO_DEEP, read_yaml

BODY_MAX = 2**20
CALLS = re.compile(r"/api/v1/(sessions/[^/]+/calls|workers/results)/?")  # functions and their results


def body_max(path: str) -> int:
    """Return the maximum body size in bytes for this URL path."""
    if CALLS.fullmatch(path):
        return int(settings.BERTH_CALL_MIB) * 2**20 + BODY_MAX
    return BODY_MAX


def too_large(limit: int) -> str:
    return f"The body is too large. Send at most {limit} bytes."


def read_json(body: bytes) -> Any:
    """Parse JSON; refuse NaN, Infinity and duplicate keys. Raises Malformed."""
    try:
        return json.loads(body, parse_constant=_no_constant, object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise Malformed(TOO_DEEP) from None
    except UnicodeDecodeError:
        raise Malformed("The body is not UTF-8 text. Encode it as UTF-8.") from None
    except ValueError as error:
        raise Malformed(f"The body is not valid JSON: {error}.") from None


class JSONParser(BaseParser):
    media_type = "application/json"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        return read_json(_bounded(stream))


class YAMLParser(BaseParser):
    media_type = "application/yaml"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        return read_yaml(_bounded(stream))


class LegacyYAMLParser(YAMLParser):
    """The media type that tools sent before YAML had a registered one."""

    media_type = "application/x-yaml"


class FramesParser(BaseParser):
    """Parse frames of JSON and bytes, for session calls and their results."""

    media_type = CONTENT_TYPE

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        assert parser_context is not None
        body = _bounded(stream, body_max(parser_context["request"].path))
        try:
            return unpacked(body)
        except ValueError as error:
            raise Malformed(f"The body is not a valid sequence of frames: {error}.") from None


def _bounded(stream: IO[bytes], limit: int = BODY_MAX) -> bytes:
    body = stream.read(limit + 1)
    if len(body) > limit:
        raise TooLarge(too_large(limit))
    return body


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {duplicate[:80]!a}")
    return mapping
