"""The site's pages, grouped for navigation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    title: str
    path: str
    icon: str

    def contains(self, path: str) -> bool:
        return (
            path == self.path if self.path == "/" else path == self.path or path.startswith(f"{self.path}/")
        )


GROUPS: tuple[tuple[str, tuple[NavigationEntry, ...]], ...] = (
    (
        "Work",
        (
            NavigationEntry("Overview", "/", "overview"),
            NavigationEntry("Workloads", "/workloads", "workloads"),
            NavigationEntry("Services", "/services", "services"),
            NavigationEntry("Queue", "/queue", "queue"),
            NavigationEntry("Submit", "/submit", "submit"),
            NavigationEntry("Templates", "/templates", "template"),
        ),
    ),
    (
        "Capacity",
        (
            NavigationEntry("Quotas", "/quotas", "quotas"),
            NavigationEntry("Fair share", "/fair-share", "share"),
            NavigationEntry("Node pools", "/node-pools", "pools"),
        ),
    ),
    (
        "History",
        (
            NavigationEntry("Evictions", "/evictions", "evictions"),
            NavigationEntry("Usage and cost", "/usage", "usage"),
            NavigationEntry("Activity", "/activity", "activity"),
        ),
    ),
    (
        "Users",
        (
            NavigationEntry("Access", "/access", "access"),
            NavigationEntry("Secrets", "/secrets", "lock"),
            NavigationEntry("Notifications", "/notifications", "bell"),
        ),
    ),
)
