"""Error that contains all problems in a workload document."""

from typing import ClassVar

from berth.core.errors import Invalid


class SpecError(Invalid):
    """Raised for an invalid workload document. `problems` lists all problems in the document."""

    code: ClassVar[str] = "invalid-workload"
    title: ClassVar[str] = "The workload document is invalid"

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
