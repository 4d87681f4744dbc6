"""The site's pages, grouped for navigation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    title: str
    path: str
    icon: str
    is_for_submitters: bool = False

    def contains(self, path: str) -> bool:
        if self.path == "/":
            return path == self.path
        return path == self.path or path.startswith(f"{self.path}/") or _list_path(path) == self.path


Groups = tuple[tuple[str, tuple[NavigationEntry, ...]], ...]
GROUPS: Groups = (
    (
        "Work",
        (
            NavigationEntry("Overview", "/", "overview"),
            NavigationEntry("Workloads", "/workloads", "workloads"),
            NavigationEntry("Services", "/services", "services"),
            NavigationEntry("Queue", "/queue", "queue"),
            NavigationEntry("Submit", "/submit", "submit", is_for_submitters=True),
            NavigationEntry("Templates", "/templates", "templates"),
            NavigationEntry("Schedules", "/schedules", "schedules"),
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
            NavigationEntry("Decisions", "/decisions", "decisions"),
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

ACCOUNT = NavigationEntry("Account", "/account", "access")  # shown below the navigation groups
# Pages that are not in the menu. Other pages and the search link to them.
UNLISTED: Groups = (
    ("Quotas", (NavigationEntry("Quota changes", "/quotas/changes", "quotas"),)),
    ("Help", (NavigationEntry("Documentation", "/docs/", "template"),)),
)

# Chapter of the documentation for each page and the pages below it. The first match wins.
CHAPTERS = (
    ("/workloads", "researchers/running-workloads/#monitor-a-workload"),
    ("/arrays", "documents/#arrays"),
    ("/services", "services/"),
    ("/queue", "concepts/#pending-reasons"),
    ("/submit", "researchers/#submit-a-workload"),
    ("/templates", "documents/#workload"),
    ("/schedules", "researchers/many-runs/#run-at-fixed-times"),
    ("/quotas", "admins/#quotas"),
    ("/fair-share", "concepts/#fair-share"),
    ("/node-pools", "admins/#node-pools"),
    ("/nodes", "admins/#node-pools"),
    ("/decisions", "concepts/#scheduling-cycle"),
    ("/evictions", "concepts/#reclaim-and-preemption"),
    ("/usage", "admins/#usage-cost-and-budgets"),
    ("/budgets", "admins/#usage-cost-and-budgets"),
    ("/activity", "admins/#evictions-and-audit"),
    ("/access", "admins/#departments-projects-and-roles"),
    ("/account", "researchers/#install-and-sign-in"),
    ("/secrets", "admins/#secrets"),
    ("/notifications", "admins/#notifications"),
    ("/", "concepts/"),
)


# List page by the first segment of its objects' paths, where the list has another path.
LISTS = {"arrays": "/workloads", "nodes": "/node-pools", "budgets": "/usage"}


def list_entry(path: str) -> NavigationEntry | None:
    """Return the list page that the page at `path` belongs to.

    Return None if there is none, or if the page is that list itself.
    """
    start = _list_path(path)
    return next((entry for _, entries in GROUPS for entry in entries if entry.path == start != path), None)


def _list_path(path: str) -> str:
    first = path.strip("/").partition("/")[0]
    return LISTS.get(first, f"/{first}")


def help_chapter(path: str) -> str:
    """Return the path of a page's documentation chapter."""
    return next(
        chapter for prefix, chapter in CHAPTERS if prefix in ("/", path) or path.startswith(f"{prefix}/")
    )


def navigation_groups(*, may_submit: bool) -> Groups:
    """Return the pages that the user can open, grouped for the navigation."""
    return tuple(
        (title, tuple(entry for entry in entries if may_submit or not entry.is_for_submitters))
        for title, entries in GROUPS
    )
