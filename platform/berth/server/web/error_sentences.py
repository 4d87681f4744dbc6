"""Convert validation problems to sentences for users of a form."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from berth.core.problems import SUGGESTION, Problem, nearest_matches
from berth.core.spec.values.quantities import DEVICES_MAX, GPU_ALLOWED, MEMORY_ALLOWED
from berth.core.spec.values.texts import NAME_ALLOWED

# Messages that are omitted, because the allowed values say enough.
COMPARISONS = (
    "is below", "is above", "is less than", "is more than", "is shorter than", "is longer than",
    "is too small", "is too large", "is out of range", "out of range", "is invalid",
)  # fmt: skip
BOUND = re.compile(r"(at least|at most|above|below) (\S+)(?:, (\S+))?")
NAME_RULE = re.compile(re.escape(NAME_ALLOWED).replace("63", r"\d+"))  # NAME_ALLOWED with any maximum length
RANGE = re.compile(r"[\d.,]+ to ")
REQUIRED = ("is empty", "is missing", "is required")
NAME_IN_USE = "is already in use"
NO_FILES = "has no files"
NAME_MAX = 63
UNKNOWN_KEY, KEYS_SHOWN = "unknown key", 5
MEMORY_ADVICE = "Enter an amount with a unit, for example 4 GiB or 512 MiB."
# Sentences for fields whose descriptions of the allowed values are too long.
ADVICE = {
    GPU_ALLOWED: f"Enter a whole number up to {DEVICES_MAX}, or a fraction such as 0.5.",
    MEMORY_ALLOWED: f"Not a valid amount of memory. {MEMORY_ADVICE}",
}


@dataclass(frozen=True, slots=True)
class ErrorSentence:
    """Problem described in plain words for users of a form.

    `replacement` is a valid value that a button can fill in, or "". `is_shortened` is True if the text lists
    only some of the valid keys.
    """

    text: str
    replacement: str = ""
    is_shortened: bool = False

    @property
    def first_sentence(self) -> str:
        return f"{self.text.partition('. ')[0].removesuffix('.')}."

    def with_suggestion(self, value: str) -> "ErrorSentence":
        """Return the first sentence of the error, followed by a question that suggests `value`."""
        return ErrorSentence(f"{self.first_sentence} {SUGGESTION}`{value}`?", value)


def describe_problem(
    problem: Problem, label: str = "", *, choice: bool = False, labels: Mapping[str, str] | None = None
) -> ErrorSentence:
    """Describe a problem with the form field `label`, or with a document key if `label` is empty.

    `labels` contains the labels of the form's other fields, keyed by path.
    """
    message, allowed = problem.message, problem.allowed
    if request := _instruction(message, allowed, label, choice=choice):
        return ErrorSentence(request)
    if NAME_RULE.fullmatch(allowed):
        name = suggest_name(problem.received)
        example = f", for example {name}" if name else ""
        return ErrorSentence(f"Use lowercase letters, digits and hyphens{example}.", name)
    if (problem.path, message) == ("code", "is a path"):
        return ErrorSentence("Select this directory under Code to send its files.")
    if message == NO_FILES:
        return ErrorSentence("Choose the files to send, or select No code.")
    if message == "is above max" and label:
        return ErrorSentence(f"Must be at most Max replicas ({allowed.removeprefix('at most ')}).")
    if message.startswith(NAME_IN_USE) and allowed.startswith(SUGGESTION):
        name = allowed.split("`")[1]
        return ErrorSentence(f"{_capitalize(message.removeprefix('is '))}. {name} is free.", name)
    if message == UNKNOWN_KEY and allowed.count(", ") >= KEYS_SHOWN:
        keys = nearest_matches(problem.received.strip("'"), allowed.split(", "), KEYS_SHOWN)
        return ErrorSentence(f"Unknown key. Valid keys include {', '.join(keys)}.", is_shortened=True)
    if advice := ADVICE.get(allowed):
        return ErrorSentence(advice)
    if bound := _describe_bound_violation(message, allowed, labels or {}):
        return ErrorSentence(bound)
    sentence = _capitalize(message.removeprefix("is ")).removesuffix(".")
    if allowed.startswith("Set "):  # `allowed` is an instruction instead of a list of values
        return ErrorSentence(f"{sentence}. {allowed.removesuffix('.')}.")
    if allowed.startswith(SUGGESTION):
        is_value = bool(label) and message != UNKNOWN_KEY
        return ErrorSentence(f"{sentence}. {allowed}", allowed.split("`")[1] if is_value else "")
    return ErrorSentence(f"{sentence}. Allowed: {allowed}." if allowed else f"{sentence}.")


def _instruction(message: str, allowed: str, label: str, *, choice: bool) -> str:
    """Ask for a valid value, as in "Enter a name.".

    Return "" unless the value is missing or `allowed` gives an example of a valid value.
    """
    if message.startswith(REQUIRED) and label:
        noun = label if label[:2].isupper() else label[:1].lower() + label[1:]
        article = "an " if noun[:1] in "aeiou" else "a "
        is_plural = noun.endswith("s") and not noun.endswith(("ss", "us"))
        return f"{'Select' if choice else 'Enter'} {'' if is_plural else article}{noun}."
    if not allowed.startswith(("a ", "an ")) or " such as " not in allowed:
        return ""
    fault = "" if message.startswith("is not a valid ") else f"{_capitalize(message.removeprefix('is '))}. "
    return f"{fault}Enter {allowed}."


def _describe_bound_violation(message: str, allowed: str, labels: Mapping[str, str]) -> str:
    """State the bound that a value violates, as in "Must be at least Minimum nodes (3).".

    Return "" for problems of other kinds.
    """
    if not (message.startswith(COMPARISONS) or message == "is not allowed") or not allowed:
        return ""
    bound = BOUND.fullmatch(allowed)
    if bound is None:
        return f"Must be {'from ' if RANGE.match(allowed) else ''}{allowed}."
    word, first, second = bound.groups()
    other = labels.get(first if second else message.rpartition(" ")[2], "")
    return f"Must be {word} {other} ({second or first})." if other else f"Must be {allowed}."


def suggest_name(received: str) -> str:
    """Return a valid name that resembles `received`.

    Return "" if `received` contains no ASCII letters or digits.
    """
    words = re.findall(r"[a-z0-9]+", received.lower(), re.ASCII)
    return "-".join(words)[:NAME_MAX].strip("-")


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
