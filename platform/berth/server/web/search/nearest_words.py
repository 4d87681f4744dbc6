"""Synonyms for page names, and spelling corrections for searches."""

from collections.abc import Iterable, Iterator
from itertools import chain
from os.path import commonprefix
from typing import Any

from django.db.models import QuerySet

from berth.core.problems import closest_match
from berth.server.web.navigation import ACCOUNT, GROUPS, UNLISTED
from berth.server.web.search.palette import EDIT_QUOTA, FORMS, VERBS
from berth.server.web.search.rank import PARTS
from berth.server.web.search.workloads import STATE_SYNONYMS, extract_task_name
from projects.access import visible_nodes, visible_pools
from projects.actor import Actor
from projects.selectors import arrays, projects, quota_groups, schedules, templates, workloads

MIN_CORRECTED_LETTERS = 3
NAMES_COMPARED = 500  # number of recent names of each kind that are compared
SYNONYMS = {
    "/": ("dashboard", "home"),
    "/workloads": ("jobs", "runs"),
    "/services": ("inference", "endpoints"),
    "/queue": ("pending", "position"),
    "/submit": ("new workload", "create workload", "launch"),
    "/schedules": ("cron",),
    "/quotas": ("limits", "departments", "projects"),
    "/quotas/changes": ("history", "drafts", "revert"),
    "/fair-share": ("weights", "rank"),
    "/node-pools": ("nodes", "machines", "clusters", "gpus"),
    "/decisions": ("cycles", "scheduler"),
    "/evictions": ("preemptions", "reclaims", "victims", "evicted"),
    "/usage": ("budgets", "prices", "reports"),
    "/activity": ("audit", "changes", "history"),
    "/access": ("users", "roles", "members"),
    "/account": ("tokens", "password", "sessions", "theme", "profile"),
    "/secrets": ("credentials", "keys"),
    "/docs/": ("help", "manual", "guides", "reference"),
    "/notifications": ("alerts", "email", "webhooks", "subscriptions"),
}


def correct_words(actor: Actor, words: Iterable[str]) -> list[str]:
    """Correct each word to the nearest word in a title, action, state or visible name.

    A word stays unchanged if it is part of one of these, or resembles none of them. In the name of an array
    task, only the array's name is corrected.
    """
    known_words = set(chain(_page_words(), _visible_names(actor)))
    return [_nearest_word(word.lower(), known_words) for word in words]


def _nearest_word(word: str, known_words: set[str]) -> str:
    if any(word in each for each in known_words):
        return word
    if task := extract_task_name([word]):
        array, index, _ = task
        if nearest_array := _one_typo_match(array, known_words) or (array if array in known_words else ""):
            return f"{nearest_array}-{index}"
    parts = set(chain.from_iterable(PARTS.split(each) for each in known_words))
    return (
        _one_typo_match(word, known_words)
        or _one_typo_match(word, parts)
        or closest_match(word, known_words)
        or word
    )


def _one_typo_match(word: str, candidates: Iterable[str]) -> str:
    """Return the first candidate that differs by one typo, or "".

    A typo is a letter inserted, left out, replaced or exchanged with the next.
    """
    if len(word) < MIN_CORRECTED_LETTERS:
        return ""
    return min((each for each in candidates if _is_one_typo(word, each)), default="")


def _is_one_typo(word: str, other: str) -> bool:
    if abs(len(word) - len(other)) > 1:
        return False
    begin = len(commonprefix((word, other)))  # noqa: RUF071 (not paths)
    rest, other_rest = word[begin:], other[begin:]
    return (
        rest[1:] == other_rest
        or rest == other_rest[1:]
        or rest[1:] == other_rest[1:]
        or (rest[:2] == other_rest[:2][::-1] and rest[2:] == other_rest[2:])
    )


def _page_words() -> Iterator[str]:
    titles = [ACCOUNT.title, *(entry.title for _, entries in (*GROUPS, *UNLISTED) for entry in entries)]
    titles += [title for title, *_ in FORMS]
    for text in (*titles, EDIT_QUOTA, *VERBS, *STATE_SYNONYMS, *chain.from_iterable(SYNONYMS.values())):
        yield from text.lower().split()


def _visible_names(actor: Actor) -> Iterator[str]:
    sources: tuple[QuerySet[Any], ...] = (
        projects(actor), visible_pools(actor), quota_groups(actor), visible_nodes(actor), schedules(actor),
        templates(actor),
    )  # fmt: skip
    for rows in sources:
        names = rows.order_by("-pk").values_list("name", flat=True)[:NAMES_COMPARED]
        yield from (str(name).lower() for name in names)
    # Sort by time, because the IDs of workloads and arrays are random.
    for submitted in (workloads(actor).filter(array=None), arrays(actor)):
        latest = submitted.order_by("-submitted_at", "-pk").values_list("name", "submitted_by__username")
        for pair in latest[:NAMES_COMPARED]:
            yield from (name.lower() for name in pair if name)
