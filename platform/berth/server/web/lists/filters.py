"""Describe page filters that refer to unknown objects or to objects hidden from the user."""

from berth.core.problems import SUGGESTION, Problem

MISSING, VISIBLE = "does not exist", "that you can see"


def describe_unknown(*problems: Problem | None) -> str:
    """Return one sentence for each problem, or "" if there is none."""
    sentences = [_describe(problem) for problem in problems if problem is not None]
    return " ".join(sentence if sentence.endswith("?") else f"{sentence}." for sentence in sentences)


def _describe(problem: Problem) -> str:
    noun = problem.path.replace("_", " ")
    if problem.message == MISSING and problem.allowed.endswith(VISIBLE):
        return f"There is no {noun} named {problem.received} that you can see"
    if problem.message == MISSING and problem.allowed and not problem.allowed.startswith(SUGGESTION):
        return f"The {noun} {problem.received} does not exist. Choose one of: {problem.allowed}"
    return f"The {noun} {problem.received} {problem.message}{problem.advice}"
