"""Parse quantities: devices, cores, memory, priorities and times."""

import math
import re
from datetime import datetime, timezone
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, NoReturn

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from berth.core.backports import parse_iso_time
from berth.core.problems import Problem
from berth.core.values.amounts import MILLI
from berth.core.values.priorities import DEFAULT, HIGHEST, LOWEST, PRIORITIES

CORES_MAX, DEVICES_MAX, MEMORY_MAX_MIB = 100_000, 1024, 2**30
# Minimum limits. Python needs about 10 MiB to start, and the kernel enforces at least a hundredth of a core.
MEMORY_LIMIT_MIN_MIB, CPU_LIMIT_MIN = 16, 0.01
MIB = 2**20
QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([A-Za-z]{0,2})", re.ASCII)
DURATION = re.compile(r"(\d{1,12})([smhd])", re.ASCII)
DURATION_ALLOWED = "a number of seconds, or one number with a unit, such as 45s, 90m, 8h or 2d"
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
BYTES = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
GPU_ALLOWED = f"a whole number from 0 to {DEVICES_MAX}, or a fraction of one device between 0.001 and 0.999"
CORES_ALLOWED = f'0 to {CORES_MAX} cores, in steps of 0.001, or text such as "800m"'
MEMORY_ALLOWED = f'0 to {MEMORY_MAX_MIB} MiB, or text with a unit such as "600Mi" or "1Gi"'
PRIORITY_ALLOWED = f"{LOWEST} to {HIGHEST}, or one of {', '.join(PRIORITIES)}"
MOMENT_ALLOWED = "a time such as 2026-01-31T09:00:00Z, or whole seconds since 1970"
LATEST = 253_402_300_799  # the last second of the year 9999


def raise_error(what: str, message: str, allowed: str) -> NoReturn:
    raise PydanticCustomError("quantity", "{message}", {"what": what, "message": message, "allowed": allowed})


def parse_gpus(value: object) -> int | float:
    """Parse a number of whole devices, or a fraction of one device with at most three decimals."""
    number = _parse_number(value, "gpu", GPU_ALLOWED)
    if number.is_integer() and 0 <= number <= DEVICES_MAX:
        return int(number)
    if number > DEVICES_MAX:
        raise_error("gpu", "is too large", f"at most {DEVICES_MAX}")
    if number > 1:
        raise_error("gpu", "a fraction of a device must be below 1", GPU_ALLOWED)
    if not 0 < number < 1 or not _is_in_thousandths(number):
        raise_error("gpu", "is not a valid number of GPUs", GPU_ALLOWED)
    return number


def parse_cores(value: object) -> int | float:
    """Parse a number of CPU cores with at most three decimals. "800m" is 0.8."""
    if isinstance(value, str):
        digits, suffix = _parse_quantity(value, "cpu", CORES_ALLOWED)
        if suffix not in ("", "m"):
            raise_error("cpu", "is not a valid number of CPU cores", CORES_ALLOWED)
        number = float(digits / MILLI if suffix else digits)
    else:
        number = _parse_number(value, "cpu", CORES_ALLOWED)
    if not 0 <= number <= CORES_MAX or not _is_in_thousandths(number):
        raise_error("cpu", "is not a valid number of CPU cores", CORES_ALLOWED)
    return int(number) if number.is_integer() else number


def parse_memory(value: object) -> int:
    """Parse an amount of memory into whole MiB, rounded up. Text must include a unit."""
    if isinstance(value, str):
        digits, suffix = _parse_quantity(value, "memory", MEMORY_ALLOWED)
        if suffix not in BYTES or not suffix:
            raise_error("memory", "has no valid unit", MEMORY_ALLOWED)
        size = int((digits * BYTES[suffix] / MIB).to_integral_value(rounding=ROUND_CEILING))
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        raise_error("memory", "is not a valid amount of memory", MEMORY_ALLOWED)
    if not 0 <= size <= MEMORY_MAX_MIB:
        raise_error("memory", "is not a valid amount of memory", MEMORY_ALLOWED)
    return size


def memory_limit_problem(path: str, limit: int | None) -> Problem | None:
    """Return a problem if a memory limit is too low for programs to start, else None."""
    if limit is None or limit >= MEMORY_LIMIT_MIN_MIB:
        return None
    message = "is less than a shell or Python needs to start"
    return Problem(path, message, f"{limit} MiB", f"{MEMORY_LIMIT_MIN_MIB} MiB or more, or unlimited")


def cpu_limit_problem(path: str, limit: float | None) -> Problem | None:
    """Return a problem if the kernel cannot enforce a CPU limit, else None."""
    if limit is None or limit >= CPU_LIMIT_MIN:
        return None
    message = "is less than the kernel can allot"
    return Problem(path, message, f"{limit} cores", f"{CPU_LIMIT_MIN} cores or more, or unlimited")


def parse_priority(value: object) -> int:
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if isinstance(value, int) and not isinstance(value, bool) and LOWEST <= value <= HIGHEST:
        return value
    raise_error("priority", "is not a valid priority", PRIORITY_ALLOWED)


def parse_time(value: object) -> datetime:
    """Parse a time with a time zone. Return the time in UTC, truncated to whole seconds."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LATEST:
        return datetime.fromtimestamp(value, timezone.utc)
    if isinstance(value, str):
        try:
            value = parse_iso_time(value)
        except ValueError:
            raise_error("time", "is not a valid time", MOMENT_ALLOWED)
    if not isinstance(value, datetime):
        raise_error("time", "is not a valid time", MOMENT_ALLOWED)
    if value.tzinfo is None:
        raise_error("time", "has no time zone", MOMENT_ALLOWED)
    try:
        when = value.astimezone(timezone.utc)
    except OverflowError:
        raise_error("time", "is not a valid time", MOMENT_ALLOWED)
    if when.timestamp() < 0:
        raise_error("time", "is before 1970", MOMENT_ALLOWED)
    return when.replace(microsecond=0)


def expand_duration(value: object) -> object:
    """Convert text such as `30m` to seconds. Any other value is returned unchanged, for later validation."""
    match = DURATION.fullmatch(value) if isinstance(value, str) else None
    return value if match is None else int(match[1]) * SECONDS[match[2]]


def parse_duration_text(value: object) -> object:
    """Convert text such as `30m` to seconds. Any value that is not text is returned unchanged."""
    seconds = expand_duration(value)
    if isinstance(seconds, str):
        raise_error("duration", "is not a valid duration", DURATION_ALLOWED)
    return seconds


def to_thousandths(number: float) -> int:
    """Convert devices or cores to thousandths. The result is exact for every number that documents allow."""
    return round(number * MILLI)


def _parse_number(value: object, what: str, allowed: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise_error(what, "must be a number", allowed)
    if isinstance(value, int) and abs(value) > LATEST:
        raise_error(what, "is too large", allowed)
    if not math.isfinite(value):
        raise_error(what, "must be a finite number", allowed)
    return float(value)


def _is_in_thousandths(number: float) -> bool:
    return abs(number * MILLI - round(number * MILLI)) < 1e-6


def _parse_quantity(text: str, what: str, allowed: str) -> tuple[Decimal, str]:
    match = QUANTITY.fullmatch(text)
    if match is None:
        raise_error(what, "is not a valid quantity", allowed)
    return Decimal(match[1]), match[2]


def _format_time(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def _json_schema(*types: str, example: object, text: str) -> WithJsonSchema:
    return WithJsonSchema({"type": list(types), "description": text, "examples": [example]})


Duration = Annotated[int, BeforeValidator(parse_duration_text)]
Gpus = Annotated[
    int | float, PlainValidator(parse_gpus), _json_schema("number", example=0.5, text=GPU_ALLOWED)
]
Cores = Annotated[
    int | float,
    PlainValidator(parse_cores),
    _json_schema("number", "string", example="800m", text=CORES_ALLOWED),
]
Mebibytes = Annotated[
    int, PlainValidator(parse_memory), _json_schema("integer", "string", example="1Gi", text=MEMORY_ALLOWED)
]
Priority = Annotated[
    int,
    PlainValidator(parse_priority),
    _json_schema("integer", "string", example=DEFAULT, text=PRIORITY_ALLOWED),
]
Moment = Annotated[
    datetime,
    PlainValidator(parse_time),
    PlainSerializer(_format_time, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
