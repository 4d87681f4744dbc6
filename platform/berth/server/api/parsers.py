"""Parse JSON and YAML bodies, and reject bodies that are too large or ambiguous."""

import json
import re
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from django.conf import settings
from rest_framework.parsers import BaseParser

from berth.core.errors import Malformed, TooLarge
from berth.core.frames import CONTENT_TYPE, unpack_frames
from berth.documents.strict import TOO_DEEP, read_yaml

BODY_MAX = 2**20
BATCH_MAX = 16 * 2**20  # enough for 1,000 workload documents in JSON
BATCH_PATHS = re.compile(r"/api/v1/workloads:batch/?")
# URL paths of requests that contain functions or results.
CALL_PATHS = re.compile(r"/api/v1/(sessions/[^/]+/calls|workers/results)/?")
# URL paths of requests that send code with workloads, as a list of files in JSON or as file contents.
CODE_TREE_PATHS = re.compile(r"/api/v1/projects/[^/]+/code/tree/?")
CODE_CHUNKS_PATHS = re.compile(r"/api/v1/projects/[^/]+/code/chunks/?")
CODE_CHUNKS_MAX = 9 * 2**20
CODE_FILE_BYTES = 512  # bytes per listed file; most paths and digests need less


def max_body_size(path: str) -> int:
    """Return the maximum body size in bytes for the given URL path."""
    if CODE_CHUNKS_PATHS.fullmatch(path):
        return CODE_CHUNKS_MAX
    if CODE_TREE_PATHS.fullmatch(path):
        return BODY_MAX + CODE_FILE_BYTES * int(settings.BERTH_CODE_FILES)
    if CALL_PATHS.fullmatch(path):
        return int(settings.BERTH_CALL_MIB) * 2**20 + BODY_MAX
    return BATCH_MAX if is_batch(path) else BODY_MAX


def is_batch(path: str) -> bool:
    return BATCH_PATHS.fullmatch(path) is not None


def too_large_message(limit: int) -> str:
    return f"The body is too large. Send at most {limit} bytes."


def read_json(body: bytes) -> Any:
    """Parse JSON. Raises Malformed for invalid JSON, NaN, Infinity and duplicate keys."""
    try:
        return json.loads(body, parse_constant=_reject_constant, object_pairs_hook=_reject_duplicates)
    except RecursionError:
        raise Malformed(TOO_DEEP) from None
    except UnicodeDecodeError:
        raise Malformed("The body is not UTF-8 text. Encode it as UTF-8.") from None
    except ValueError as error:
        raise Malformed(f"The body is not valid JSON: {error}.") from None


class JSONParser(BaseParser):
    media_type = "application/json"
    read = staticmethod(read_json)

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        return self.read(_read_bounded(stream, self.size_max(parser_context)))

    def size_max(self, parser_context: Mapping[str, Any] | None) -> int:
        return BODY_MAX if parser_context is None else max_body_size(parser_context["request"].path)


class MergePatchParser(JSONParser):
    """Parser for JSON merge patches (RFC 7396), which have their own media type."""

    media_type = "application/merge-patch+json"


class YAMLParser(JSONParser):
    media_type = "application/yaml"
    read = staticmethod(read_yaml)

    def size_max(self, parser_context: Mapping[str, Any] | None) -> int:
        """Return the maximum size of a YAML body in bytes. Parsing YAML is slow, so no path allows more."""
        return BODY_MAX


class LegacyYAMLParser(YAMLParser):
    """YAML parser for the media type that was common before `application/yaml` was registered."""

    media_type = "application/x-yaml"


class FramesParser(BaseParser):
    """Parser for session calls and results, which are sent as frames of JSON and bytes."""

    media_type = CONTENT_TYPE

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        assert parser_context is not None
        body = _read_bounded(stream, max_body_size(parser_context["request"].path))
        try:
            return unpack_frames(body)
        except ValueError as error:
            raise Malformed(f"The body is not a valid sequence of frames: {error}.") from None


def _read_bounded(stream: IO[bytes], limit: int = BODY_MAX) -> bytes:
    body = stream.read(limit + 1)
    if len(body) > limit:
        raise TooLarge(too_large_message(limit))
    return body


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {duplicate[:80]!a}")
    return mapping
