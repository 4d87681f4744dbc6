"""Here we refuse a document with everything that is wrong with it."""
from berth.core.errors import Invalid
from berth.core.problems import Problem, nearest, path_of, shown

__all__ = ["Problem", "SpecError", "nearest", "path_of", "shown"]


class SpecError(Invalid, ValueError):
    """A document that cannot be taken; `problems` names every fault."""

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
