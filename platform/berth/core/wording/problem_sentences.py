"""Convert validation problems to sentences."""

import re

from berth.core.errors import BerthError, Invalid
from berth.core.problems import SUGGESTION, Problem

NOUNS = {"pools": "node pool", "gpu": "GPUs", "cpu": "CPU cores", "memory_mib": "memory in MiB"}
VERBS = ("is ", "does ", "must ", "has ", "needs ", "was ", "can ", "cannot ", "requires ")
STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def describe_error(error: BerthError) -> str:
    """Describe the error in sentences, without document paths."""
    if isinstance(error, Invalid):
        return " ".join(describe_problem(problem) for problem in error.problems)
    return error.detail


def describe_problem(problem: Problem) -> str:
    """Return a sentence such as "Node pool 'night' does not exist. Allowed: local, train."."""
    subject, received = _subject(problem.path), problem.received
    if received and problem.message == "does not exist":  # the received value is a name
        subject, received = f"{re.sub(r' [0-9]+$', '', subject)} {received}", ""
    subject = subject[:1].upper() + subject[1:]
    message = problem.message.removesuffix(".")
    sentence = f"{subject} {message}" if message.startswith(VERBS) else f"{subject}: {message}"
    sentence += f" (received {received})." if received else "."
    if problem.allowed.startswith(SUGGESTION):
        return f"{sentence} {problem.allowed}"
    return f"{sentence} Allowed: {problem.allowed}." if problem.allowed else sentence


def _subject(path: str) -> str:
    """Return the words for a path, such as "GPUs of role 1" for `roles[0].gpu`."""
    nouns: list[str] = []
    for name, index in STEP.findall(path):
        if name:
            nouns.append(NOUNS.get(name, name.replace("_", " ")))
        elif nouns:
            nouns[-1] = f"{nouns[-1].removesuffix('s')} {int(index) + 1}"
    return " of ".join(reversed(nouns)) or "the document"
