"""Describe page filters that refer to unknown objects or to objects hidden from the user."""

from berth.core.problems import Problem


def describe_unknown(*problems: Problem | None) -> str:
    """Return one sentence for each problem, or "" if there is none."""
    sentences = [
        f"The {problem.path.replace('_', ' ')} {problem.received} {problem.message}{problem.advice}"
        for problem in problems
        if problem is not None
    ]
    return " ".join(sentence if sentence.endswith("?") else f"{sentence}." for sentence in sentences)
