"""Item in the "Needs attention" list of the overview."""

from dataclasses import dataclass
from datetime import datetime

from projects.models import Workload


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """Item that needs attention, such as "vision/sweep: 2 GPUs idle.".

    `name` is a project, a pool or PROJECT/NAME of a workload, and links to `path`. `text` is a sentence. `at`
    is the time at which the problem began, if known. `log` is the URL of the log that contains the error.
    """

    label: str
    tone: str
    name: str
    path: str
    text: str
    at: datetime | None = None
    log: str = ""
    failed: Workload | None = None  # failed workload, or the array's task that failed last
    is_failed: bool = False  # whether the list of failed workloads contains the workload or array
