"""Error that lists all problems of a document."""

from typing import ClassVar

from berth.core.errors import Invalid


class SpecError(Invalid):
    """Invalid workload document; `problems` contains all of its problems."""

    code: ClassVar[str] = "invalid-workload"
    title: ClassVar[str] = "The workload document is invalid"

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
