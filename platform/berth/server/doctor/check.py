"""Result of one `berth doctor` check."""

from dataclasses import asdict, dataclass
from typing import Any

from berth.core.backports import StrEnum


class CheckStatus(StrEnum):
    OK = "ok"
    LIMITED = "limited"  # Berth works, but with the limitation that the check describes
    MISSING = "missing"  # Berth, or all of its pods, would fail to start


@dataclass(frozen=True)
class Check:
    """Result of one check.

    `finding` is a sentence. `remedy` describes how to fix the problem, or is empty.
    """

    name: str
    status: CheckStatus
    finding: str
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"status": str(self.status)}


def split_remedy(obstacle: str) -> tuple[str, str]:
    """Split a message into its first sentence, which states the obstacle, and the remedy that follows."""
    first, _, rest = obstacle.partition(". ")
    return f"{first.rstrip('.')}.", rest
