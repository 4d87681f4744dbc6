"""Named priorities, priority bounds, and the default priority of each workload kind."""

PRIORITIES = {
    "very-low": 25,
    "low": 40,
    "medium-low": 65,
    "medium": 80,
    "medium-high": 90,
    "high": 125,
    "very-high": 150,
}
LOWEST, HIGHEST, DEFAULT = 0, 1000, 50
# Higher than every other default, so that a submission without a priority cannot preempt a service.
SERVICE_DEFAULT = 80
PREEMPTIBLE_BELOW = 100


def default_priority(kind: str) -> int:
    return SERVICE_DEFAULT if kind == "service" else DEFAULT


def is_preemptible_by_default(priority: int) -> bool:
    return priority < PREEMPTIBLE_BELOW
