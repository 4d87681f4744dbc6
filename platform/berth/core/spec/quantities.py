"""Parse quantities: cores, devices, MiB, priorities and times."""

import math
import re
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, NoReturn

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from berth.core.amounts import MILLI
from berth.core.priorities import DEFAULT, HIGHEST, LOWEST, PRIORITIES

CORES_MAX, DEVICES_MAX, MEMORY_MAX_MIB = 100_000, 1024, 2**30
MIB = 2**20
QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([A-Za-z]{0,2})", re.ASCII)
BYTES = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
GPU_ALLOWED = f"a whole number from 0 to {DEVICES_MAX}, or a part of one device between 0.001 and 0.999"
CORES_ALLOWED = f'0 to {CORES_MAX} cores, in steps of 0.001, or text such as "800m"'
MEMORY_ALLOWED = f'0 to {MEMORY_MAX_MIB} MiB, or text with a unit such as "600Mi" or "1Gi"'
PRIORITY_ALLOWED = f"{LOWEST} to {HIGHEST}, or one of {', '.join(PRIORITIES)}"
MOMENT_ALLOWED = "a time such as 2026-01-31T09:00:00Z, or whole seconds since 1970"
LATEST = 253_402_300_799  # the last second of the year 9999


def refuse(what: str, message: str, allowed: str) -> NoReturn:
    raise PydanticCustomError("quantity", "{message}", {"what": what, "message": message, "allowed": allowed})


def gpus(value: object) -> int | float:
    """Parse a number of whole devices, or a fraction of one device in thousandths."""
    number = _number(value, "gpu", GPU_ALLOWED)
    if number.is_integer() and 0 <= number <= DEVICES_MAX:
        return int(number)
    if number > 1:
        refuse("gpu", "a part of a device cannot be above one device", GPU_ALLOWED)
    if not 0 < number < 1 or not _in_thousandths(number):
        refuse("gpu", "is not a number of GPUs", GPU_ALLOWED)
    return number


def cores(value: object) -> int | float:
    """Parse CPU cores with at most three decimals; "800m" is 0.8."""
    if isinstance(value, str):
        digits, suffix = _quantity(value, "cpu", CORES_ALLOWED)
        if suffix not in ("", "m"):
            refuse("cpu", "is not a number of CPU cores", CORES_ALLOWED)
        number = float(digits / MILLI if suffix else digits)
    else:
        number = _number(value, "cpu", CORES_ALLOWED)
    if not 0 <= number <= CORES_MAX or not _in_thousandths(number):
        refuse("cpu", "is not a number of CPU cores", CORES_ALLOWED)
    return int(number) if number.is_integer() else number


def mebibytes(value: object) -> int:
    """Parse memory as whole MiB, rounded up; text needs a unit."""
    if isinstance(value, str):
        digits, suffix = _quantity(value, "memory", MEMORY_ALLOWED)
        if suffix not in BYTES or not suffix:
            refuse("memory", "has no known unit", MEMORY_ALLOWED)
        size = int((digits * BYTES[suffix] / MIB).to_integral_value(rounding=ROUND_CEILING))
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        refuse("memory", "is not an amount of memory", MEMORY_ALLOWED)
    if not 0 <= size <= MEMORY_MAX_MIB:
        refuse("memory", "is not an amount of memory", MEMORY_ALLOWED)
    return size


def priority(value: object) -> int:
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if isinstance(value, int) and not isinstance(value, bool) and LOWEST <= value <= HIGHEST:
        return value
    refuse("priority", "is not a priority", PRIORITY_ALLOWED)


def moment(value: object) -> datetime:
    """Parse a time, which must have a time zone. Return it in UTC, truncated to seconds."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LATEST:
        return datetime.fromtimestamp(value, UTC)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            refuse("time", "is not a time", MOMENT_ALLOWED)
    if not isinstance(value, datetime):
        refuse("time", "is not a time", MOMENT_ALLOWED)
    if value.tzinfo is None:
        refuse("time", "has no time zone", MOMENT_ALLOWED)
    try:
        when = value.astimezone(UTC)
    except OverflowError:
        refuse("time", "is not a time", MOMENT_ALLOWED)
    if when.timestamp() < 0:
        refuse("time", "is before 1970", MOMENT_ALLOWED)
    return when.replace(microsecond=0)


def in_thousandths(number: float) -> int:
    """Convert devices or cores to thousandths, exactly for every number that a document may contain."""
    return round(number * MILLI)


def _number(value: object, what: str, allowed: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        refuse(what, "is not a number", allowed)
    if isinstance(value, int) and abs(value) > LATEST:
        refuse(what, "is too large", allowed)
    if not math.isfinite(value):
        refuse(what, "is not a finite number", allowed)
    return float(value)


def _in_thousandths(number: float) -> bool:
    return abs(number * MILLI - round(number * MILLI)) < 1e-6


def _quantity(text: str, what: str, allowed: str) -> tuple[Decimal, str]:
    match = QUANTITY.fullmatch(text)
    if match is None:
        refuse(what, "is not a quantity", allowed)
    return Decimal(match[1]), match[2]


def _iso(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def _schema(*types: str, example: object, text: str) -> WithJsonSchema:
    return WithJsonSchema({"type": list(types), "description": text, "examples": [example]})


Gpus = Annotated[int | float, PlainValidator(gpus), _schema("number", example=0.5, text=GPU_ALLOWED)]
Cores = Annotated[
    int | float, PlainValidator(cores), _schema("number", "string", example="800m", text=CORES_ALLOWED)
]
Mebibytes = Annotated[
    int, PlainValidator(mebibytes), _schema("integer", "string", example="1Gi", text=MEMORY_ALLOWED)
]
Priority = Annotated[
    int, PlainValidator(priority), _schema("integer", "string", example=DEFAULT, text=PRIORITY_ALLOWED)
]
Moment = Annotated[
    datetime,
    PlainValidator(moment),
    PlainSerializer(_iso, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
