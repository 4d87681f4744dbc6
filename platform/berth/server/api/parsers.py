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
CALLS = re.compile(r"/api/v1/(sessions/[^/]+/calls|workers/results)/?")  # functions and what they returned
TOO_LARGE = f"A body may have at most {BODY_MAX} bytes."


def body_max(path: str) -> int:
    """Bytes that a body may have at this address."""
    if CALLS.fullmatch(path):
        return int(settings.BERTH_CALL_MIB) * 2**20 + BODY_MAX
    return BODY_MAX


def read_json(body: bytes) -> Any:
    """Refuses NaN and Infinity, which are not JSON, and keys given twice, of which one would win silently."""
    try:
        return json.loads(body, parse_constant=_no_constant, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise Malformed(TOO_DEEP) from None
    except UnicodeDecodeError:
        raise Malformed("The body is not UTF-8 text.") from None
    except ValueError as error:
        raise Malformed(f"The body is not JSON: {error}.") from None


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


class OldYAMLParser(YAMLParser):
    """The name that tools used before YAML had a registered one."""

    media_type = "application/x-yaml"


class FramesParser(BaseParser):
    """Words and opaque bytes, for the few addresses that take them."""

    media_type = CONTENT_TYPE

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        assert parser_context is not None
        most = body_max(parser_context["request"].path)
        body = stream.read(most + 1)
        if len(body) > most:
            raise TooLarge(f"A body may have at most {most} bytes here.")
        try:
            return unpacked(body)
        except ValueError as error:
            raise Malformed(f"The body is not made of frames: {error}.") from None


def _bounded(stream: IO[bytes]) -> bytes:
    body = stream.read(BODY_MAX + 1)
    if len(body) > BODY_MAX:
        raise TooLarge(TOO_LARGE)
    return body


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:80]!a} stands twice")
    return found
