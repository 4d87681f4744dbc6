"""Additional words that find pages, and corrections of misspelt searches."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from django.db.models import QuerySet

from berth.core.problems import closest_match
from berth.server.web.navigation import ACCOUNT, GROUPS
from berth.server.web.palette import EDIT_QUOTA, FORMS, VERBS
from projects.access import visible_nodes, visible_pools
from projects.actor import Actor
from projects.selectors import projects, quota_groups, schedules, templates, workloads

NAMES_COMPARED = 500  # latest names of each kind
SYNONYMS = {
    "/": ("dashboard", "home"),
    "/workloads": ("jobs", "runs"),
    "/services": ("inference", "endpoints"),
    "/queue": ("pending", "position"),
    "/submit": ("new workload", "create workload", "launch"),
    "/schedules": ("cron",),
    "/quotas": ("limits", "departments", "projects"),
    "/fair-share": ("weights", "rank"),
    "/node-pools": ("nodes", "machines", "clusters", "gpus"),
    "/decisions": ("cycles", "scheduler"),
    "/evictions": ("preemptions", "reclaims", "victims"),
    "/usage": ("budgets", "prices", "reports"),
    "/activity": ("audit", "changes", "history"),
    "/access": ("users", "roles", "members"),
    "/account": ("tokens", "password", "sessions", "theme", "profile"),
    "/secrets": ("credentials", "keys"),
    "/notifications": ("alerts", "email", "webhooks", "subscriptions"),
}


def nearest(actor: Actor, words: Iterable[str]) -> list[str]:
    """Replace each word with the most similar word of a page, an action or a visible name.

    A word that is part of such a word, or that resembles none, is unchanged.
    """
    known_words = set(chain(_words_of_pages(), _visible_names(actor)))
    return [_nearest_word(word.lower(), known_words) for word in words]


def _nearest_word(word: str, known_words: set[str]) -> str:
    if any(word in each for each in known_words):
        return word
    return closest_match(word, known_words) or word


def _words_of_pages() -> Iterator[str]:
    titles = [ACCOUNT.title, *(entry.title for _, entries in GROUPS for entry in entries)]
    titles += [title for title, *_ in FORMS]
    for text in (*titles, EDIT_QUOTA, *VERBS, *chain.from_iterable(SYNONYMS.values())):
        yield from text.lower().split()


def _visible_names(actor: Actor) -> Iterator[str]:
    sources: tuple[QuerySet[Any], ...] = (
        projects(actor), visible_pools(actor), quota_groups(actor), visible_nodes(actor), schedules(actor),
        templates(actor),
    )  # fmt: skip
    latest = [rows.order_by("-pk") for rows in sources]
    latest.append(workloads(actor).order_by("-submitted_at", "-pk"))  # their IDs are random
    for rows in latest:
        names = rows.values_list("name", flat=True)[:NAMES_COMPARED]
        yield from (str(name).lower() for name in names)
