"""The error that lists all problems of a document."""

from typing import ClassVar

from berth.core.errors import Invalid


class SpecError(Invalid):
    """An invalid workload document; `problems` has everything that is wrong with it."""

    code: ClassVar[str] = "invalid-workload"
    title: ClassVar[str] = "The workload document cannot be taken"

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
