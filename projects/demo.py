"""The demo organization: two departments, four projects, a user for each role, and one pool.

Research and product each have a quota of 4 GPUs. The pool `local` scales from zero to four nodes with two
GPUs each. The project vision has a high weight, so it can borrow most of the other projects' idle quota. The
project ads can reclaim its own four GPUs.
"""

from collections.abc import Mapping
from typing import Any

POOL: Mapping[str, Any] = {
    "name": "local",
    "provider": "local",
    "runtime": "local",
    "nodes_min": 0,
    "nodes_max": 4,
    "gpus_per_node": 2,
    "cpu_milli": 4000,
    "memory_mib": 4096,
}

DEPARTMENTS: Mapping[str, Mapping[str, Any]] = {
    "research": {"title": "Research", "quota": {"gpu": 4, "weight": 1}},
    "product": {"title": "Product", "quota": {"gpu": 4, "weight": 1}},
}

PROJECTS: Mapping[str, Mapping[str, Any]] = {
    "vision": {"department": "research", "title": "Computer vision", "quota": {"gpu": 2, "weight": 2}},
    "speech": {"department": "research", "title": "Speech", "rank": 1, "quota": {"gpu": 2, "weight": 1}},
    "ads": {
        "department": "product",
        "title": "Ad ranking",
        "quota": {"gpu": 4, "weight": 1, "limit": {"gpu": 6}},
    },
    "search": {"department": "product", "title": "Search", "quota": {"gpu": 0, "weight": 1}},
}

# Role and scope of each user. Unlisted departments and projects have no members.
PEOPLE: Mapping[str, tuple[str, str]] = {
    "bob": ("department_admin", "research"),
    "carol": ("project_admin", "vision"),
    "dave": ("member", "vision"),
    "erin": ("viewer", "vision"),
    "gina": ("member", "speech"),
    "grace": ("member", "ads"),
    "henry": ("project_admin", "search"),
}
