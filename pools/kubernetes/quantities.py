"""Parse Kubernetes quantities such as `100m`, `2` or `512Mi`."""

import math
import re
from decimal import Decimal

_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([numkKMGTPE]|[KMGTPE]i)?)")
_SUFFIXES = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}  # fmt: skip
MIB = 1024 * 1024


def parse_quantity(text: object) -> Decimal:
    """Return the quantity in base units. Raises ValueError if the text is not a valid quantity."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a valid Kubernetes quantity")
    number, exponent, suffix = match.groups()
    return Decimal(number + (exponent or "")) * _SUFFIXES[suffix or ""]


def to_milli(text: object) -> int:
    """Return the quantity in thousandths, rounded up."""
    return math.ceil(parse_quantity(text) * 1000)


def to_mebibytes(text: object) -> Decimal:
    return parse_quantity(text) / MIB
