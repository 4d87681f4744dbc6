"""Error for invalid scenarios."""

from collections.abc import Sequence
from typing import ClassVar

from berth.core.errors import Invalid
from berth.core.problems import Problem


class ScenarioError(Invalid):
    """Raised for an invalid scenario. `problems` lists all errors, and the message shows the first."""

    code: ClassVar[str] = "invalid-scenario"
    title: ClassVar[str] = "The scenario is invalid"

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        self.line = f"{self.problems[0]}{more}"

    def __str__(self) -> str:
        return self.line
