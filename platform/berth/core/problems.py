"""One validation problem: where it is, what was given, what is allowed."""

import difflib
from collections.abc import Iterable
from dataclasses import asdict, dataclass

SHOWN = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend. `path` is how a person would point at it: `roles[0].gpu`."""

    path: str
    message: str
    given: str = ""
    allowed: str = ""

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        parts = [f"{self.path or 'document'}: {self.message}"]
        if self.given:
            parts.append(f"given {self.given}")
        if self.allowed:
            parts.append(f"allowed: {self.allowed}")
        return "; ".join(parts)


def shown(value: object) -> str:
    """A value as it may stand in a message: short, on one line, harmless to print."""
    text = ascii(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def path_of(location: Iterable[str | int]) -> str:
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            shown_step = step if step.isidentifier() or _plain(step) else ascii(step)[:SHOWN]
            path += f".{shown_step}" if path else shown_step
    return path


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, or nothing."""
    return next(iter(difflib.get_close_matches(word[:SHOWN], sorted(known), n=1)), "")


def _plain(step: str) -> bool:
    return (
        0 < len(step) <= SHOWN and all(char.isalnum() or char in "-_/." for char in step) and step.isascii()
    )
