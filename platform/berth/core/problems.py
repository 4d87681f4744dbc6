"""Validation problems, each with its path, the received value and the allowed values."""

import difflib
import sys
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from heapq import nlargest
from os.path import commonprefix

VALUE_MAX = 80
COMPARED_MAX = 100  # if there are more valid words, only the most promising are compared
LISTED_MAX = 8  # longer lists of visible names are omitted
SUGGESTION = "Did you mean "


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem with one value. `path` locates the value as users write it, such as `roles[0].gpu`."""

    path: str
    message: str
    received: str = ""
    allowed: str = ""  # the allowed values, or a suggestion

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    @property
    def advice(self) -> str:
        """End of the message: the allowed values, a suggestion or ""."""
        if self.allowed.startswith(SUGGESTION):
            return f". {self.allowed}"
        return f"; allowed: {self.allowed}" if self.allowed else ""

    def __str__(self) -> str:
        received = f"; received {self.received}" if self.received else ""
        return f"{self.path or 'document'}: {self.message}{received}{self.advice}"


def format_value(value: object) -> str:
    """Format a value for a message as a short, printable string on one line."""
    try:
        text = ascii(value)
    except ValueError:  # Python does not convert larger integers to decimal digits
        return f"a number with more than {sys.get_int_max_str_digits()} digits"
    return text if len(text) <= VALUE_MAX else text[: VALUE_MAX - 3] + "..."


def join_path(location: Iterable[str | int]) -> str:
    """Join keys and list indexes into a path such as `roles[0].gpu`."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            shown_step = step if step.isidentifier() or _is_plain(step) else ascii(step)[:VALUE_MAX]
            path += f".{shown_step}" if path else shown_step
    return path


def suggest(word: str, valid: Iterable[str]) -> str:
    """Return "Did you mean `x`?" for the closest valid word, or list all valid words."""
    words = list(valid)
    match = closest_match(word, words)
    return f"{SUGGESTION}`{match}`?" if match else ", ".join(words)


def suggest_visible_names(word: str, visible: Collection[str], noun: str) -> str:
    """Suggest the closest visible name. If no name is close, list all visible names.

    If the list would be empty or too long, describe the names with `noun` instead.
    """
    match = closest_match(word, visible)
    if match:
        return f"{SUGGESTION}`{match}`?"
    return ", ".join(sorted(visible)) if 0 < len(visible) <= LISTED_MAX else f"{noun} that you can see"


def closest_match(word: str, valid: Iterable[str]) -> str:
    """Return the closest valid word, or "" if none is close."""
    word, words = word[:VALUE_MAX], sorted(valid)
    if len(words) > COMPARED_MAX:
        words = nlargest(COMPARED_MAX, words, key=lambda each: len(commonprefix((word, each))))  # noqa: RUF071 (not paths)
    return next(iter(difflib.get_close_matches(word, words, n=1)), "")


def nearest_matches(word: str, valid: Iterable[str], count: int) -> list[str]:
    """Return the valid words that are most similar to `word`, best match first."""
    return difflib.get_close_matches(word[:VALUE_MAX], sorted(valid)[:COMPARED_MAX], n=count, cutoff=0)


def _is_plain(step: str) -> bool:
    return (
        0 < len(step) <= VALUE_MAX
        and all(char.isalnum() or char in "-_/." for char in step)
        and step.isascii()
    )
