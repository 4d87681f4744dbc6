"""Pages of the site, in groups."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    title: str
    path: str
    icon: str

    def holds(self, path: str) -> bool:
        return (
            path == self.path if self.path == "/" else path == self.path or path.startswith(f"{self.path}/")
        )


GROUPS: tuple[tuple[str, tuple[Place, ...]], ...] = (
    (
        "Work",
        (
            Place("Overview", "/", "overview"),
            Place("Workloads", "/workloads", "workloads"),
            Place("Services", "/services", "services"),
            Place("Queue", "/queue", "queue"),
            Place("Submit", "/submit", "submit"),
            Place("Templates", "/templates", "template"),
        ),
    ),
    (
        "Capacity",
        (
            Place("Quotas", "/quotas", "quotas"),
            Place("Fair share", "/fair-share", "share"),
            Place("Node pools", "/node-pools", "pools"),
        ),
    ),
    (
        "History",
        (
            Place("Evictions", "/evictions", "evictions"),
            Place("Usage and cost", "/usage", "usage"),
            Place("Activity", "/activity", "activity"),
        ),
    ),
    (
        "Users",
        (
            Place("Access", "/access", "access"),
            Place("Notifications", "/notifications", "bell"),
        ),
    ),
)
