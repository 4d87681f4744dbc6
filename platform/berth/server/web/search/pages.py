"""Pages as search results: pages in the menu, and pages that can only be reached from other pages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from django.urls import reverse

from berth.server.web.navigation import ACCOUNT, UNLISTED, NavigationEntry, navigation_groups
from berth.server.web.search.nearest_words import SYNONYMS
from berth.server.web.search.palette import STOP_WORDS, SearchHit, words_not_in_title
from berth.server.web.search.rank import is_keyword_prefix
from projects.access import is_platform_admin, may_submit_anywhere, visible_pools
from projects.actor import Actor

MAX_POOL_PAGES = 6


@dataclass(frozen=True, slots=True)
class _PoolPage:
    """Page of a node pool. If `provider` is set, only pools with this provider have the page."""

    title: str
    route: str
    query: str = ""
    is_for_admins: bool = False
    provider: str = ""
    in_dialog: bool = False


POOL_PAGES = (
    _PoolPage("Capacity and cost", "node-pool", "?tab=capacity"),
    _PoolPage("Scaling history", "node-pool", "?tab=history"),
    _PoolPage("Settings", "pool-settings", is_for_admins=True, in_dialog=True),
    _PoolPage("Machines", "pool-machines", is_for_admins=True, provider="static"),
    _PoolPage("Hosts", "pool-ssh-hosts", is_for_admins=True, provider="ssh"),
)


def page_hits(actor: Actor, words: Sequence[str]) -> Iterator[SearchHit]:
    """Yield the pages whose titles or keywords match all words.

    Without words, yield the menu and the account pages.
    """
    groups = [*navigation_groups(may_submit=may_submit_anywhere(actor)), ("Users", (ACCOUNT,))]
    if words:
        groups += UNLISTED
        if actor.user is not None and actor.user.is_staff:
            groups.append(("", (NavigationEntry("Admin site", "/admin/", "admin"),)))
    for group, entries in groups:
        for entry in entries:
            title, keywords = entry.title.lower(), SYNONYMS.get(entry.path, ())
            starts = tuple(chain.from_iterable(each.split() for each in keywords))
            if all(word.lower() in title or is_keyword_prefix(word, starts) for word in words):
                yield SearchHit(entry.title, entry.path, entry.icon, group)


def pool_page_hits(actor: Actor, words: Sequence[str]) -> list[SearchHit]:
    """Return the pages of node pools that match the words, such as "scaling train".

    At least one word must be in the title.
    """
    others = {page: words_not_in_title(words, page.title) for page in POOL_PAGES}
    significant = [word for word in words if word.lower() not in STOP_WORDS]
    pages = [page for page in POOL_PAGES if len(others[page]) < len(significant)]
    if not pages:
        return []
    is_admin = is_platform_admin(actor)
    hits = (
        SearchHit(page.title, f"{path}{page.query}", "pools", pool.name, in_dialog=page.in_dialog)
        for pool in visible_pools(actor).order_by("name")
        for page in pages
        if (is_admin or not page.is_for_admins) and page.provider in ("", pool.provider)
        if all(word in pool.name for word in others[page])
        for path in (reverse(page.route, args=[pool.name]),)
    )
    return list(islice(hits, MAX_POOL_PAGES))
