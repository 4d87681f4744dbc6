"""Convert validation problems to sentences for users of a form."""

import re
from dataclasses import dataclass

from berth.core.problems import SUGGESTION, Problem
from berth.core.spec.values.texts import NAME_ALLOWED

REQUIRED = ("is empty", "is missing", "is required")
NAME_IN_USE = "is already in use"
NO_FILES = "has no files"
NAME_MAX = 63


@dataclass(frozen=True, slots=True)
class ErrorSentence:
    """Error sentence. `replacement` is a valid value that a button can fill in, or ""."""

    text: str
    replacement: str = ""

    def with_suggestion(self, value: str) -> "ErrorSentence":
        """Return the first sentence of the text, followed by a question that suggests the value."""
        return ErrorSentence(
            f"{self.text.partition('. ')[0].removesuffix('.')}. {SUGGESTION}`{value}`?", value
        )


def describe_problem(problem: Problem, label: str = "", *, choice: bool = False) -> ErrorSentence:
    """Describe a problem with a form field, given its label, or with a document key if there is no label."""
    message, allowed = problem.message, problem.allowed
    if message.startswith(REQUIRED) and label:
        noun = label if label[:2].isupper() else label[:1].lower() + label[1:]
        article = "an" if noun[:1] in "aeiou" else "a"
        return ErrorSentence(f"{'Select' if choice else 'Enter'} {article} {noun}.")
    if allowed == NAME_ALLOWED:
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
    sentence = _capitalize(message.removeprefix("is ")).removesuffix(".")
    if allowed.startswith(SUGGESTION):
        return ErrorSentence(f"{sentence}. {allowed}", allowed.split("`")[1] if label else "")
    return ErrorSentence(f"{sentence}. Allowed: {allowed}." if allowed else f"{sentence}.")


def suggest_name(received: str) -> str:
    """Return a valid name that resembles `received`, or "" without ASCII letters or digits."""
    words = re.findall(r"[a-z0-9]+", received.lower(), re.ASCII)
    return "-".join(words)[:NAME_MAX].strip("-")


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
