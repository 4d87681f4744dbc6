"""Names of the replay policies. This module imports no policy."""

from berth.core.backports import StrEnum


class Policy(StrEnum):
    FAIR = "fair"  # Berth's engine
    FIFO = "fifo"
    SKIP = "skip"
    STATIC_FIFO = "static-fifo"
    STATIC_SKIP = "static-skip"
