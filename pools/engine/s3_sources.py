"""Validate a volume's S3 source and its settings."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from berth.core.problems import Problem, format_value
from berth.core.spec.values.texts import NAME, find_control_character
from berth.core.values.endpoints import endpoint_problem

Access = Literal["read_only", "read_write"]
READ_ONLY, READ_WRITE = ACCESSES = ("read_only", "read_write")
S3 = "s3://"
S3_KEYS = ("endpoint", "region", "secret", "max_gib")
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
REGION = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
PREFIX_MAX = 512
MAX_GIB, MAX_GIB_MAX = 100, 100_000  # default and maximum values for `max_gib`


def s3_problems(path: str, entry: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each invalid S3 setting, and for each S3 setting of a volume that is not in S3."""
    used = [key for key in S3_KEYS if entry.get(key) not in (None, "")]
    source = entry.get("source")
    if not isinstance(source, str) or not source.startswith(S3):
        for key in used:
            allowed = "this key only with a source s3://BUCKET/PREFIX"
            yield Problem(
                f"{path}.{key}", "is not supported for this source", format_value(entry[key]), allowed
            )
        return
    checks = {
        "endpoint": (endpoint_problem, "a URL without a path, such as https://s3.example.org:9000"),
        "region": (_region_problem, "a region name, such as eu-central-1"),
        "secret": (_secret_problem, "one of the pool's s3_key secrets"),
        "max_gib": (_max_gib_problem, f"a whole number of GiB from 1 to {MAX_GIB_MAX:,}"),
    }
    for key in used:
        problem, allowed = checks[key]
        if message := problem(entry[key]):
            yield Problem(f"{path}.{key}", message, format_value(entry[key]), allowed)


def s3_source_problem(source: str, *, is_kubernetes: bool) -> str:
    bucket, _, prefix = source.removeprefix(S3).partition("/")
    if is_kubernetes:
        return "is not supported on Kubernetes, whose nodes do not run the Berth agent that fetches it"
    if not BUCKET.fullmatch(bucket):
        return "does not name a valid bucket"
    names = prefix.removesuffix("/").split("/") if prefix else []
    if {"", ".", ".."} & set(names):
        return "has a prefix with an empty part, . or .."
    if len(prefix.encode("utf-8", "replace")) > PREFIX_MAX:
        return f"has a prefix of more than {PREFIX_MAX} bytes"
    return "has a prefix with a control character" if find_control_character(prefix) else ""


def _region_problem(value: object) -> str:
    is_region = isinstance(value, str) and REGION.fullmatch(value)
    return "" if is_region else "is not a valid region"


def _secret_problem(value: object) -> str:
    is_name = isinstance(value, str) and NAME.fullmatch(value)
    return "" if is_name else "is not a valid name"


def _max_gib_problem(value: object) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return "" if is_number and 1 <= value <= MAX_GIB_MAX else "is not a valid size"  # type: ignore[operator]
