"""Here we name priorities; every number from 0 to 1000 is allowed, these have names."""

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
PREEMPTIBLE_BELOW = 100


def preemptible_by_default(priority: int) -> bool:
    return priority < PREEMPTIBLE_BELOW
