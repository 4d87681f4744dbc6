"""Saved views of a list: a person's filters and columns under a name."""

from django.contrib.auth.models import User
from django.db import transaction
from django.http import QueryDict

from berth.core.errors import Conflict, Forbidden, Invalid
from berth.core.problems import Problem, shown
from projects.acting import Acting
from projects.models import SavedView
from projects.services import audit

MOST_VIEWS = 30
MOST_QUERY = 2000
NOT_KEPT = ("cursor", "csrfmiddlewaretoken", "format")


def save_view(*, acting: Acting, name: str, query: str) -> SavedView:
    """Create a view of the acting person, or replace the one of that name.

    Raises Invalid for the name, Conflict for too many views, Forbidden where no person acts.
    """
    owner = _person(acting)
    name = name.strip()
    if not 1 <= len(name) <= 60 or "\x00" in name:
        raise Invalid([Problem("name", "is not a name", shown(name), "1 to 60 characters")])
    kept = QueryDict(query[:MOST_QUERY], mutable=True)
    for key in NOT_KEPT:
        kept.pop(key, None)
    if SavedView.objects.filter(user=owner).exclude(name=name).count() >= MOST_VIEWS:
        raise Conflict(f"You have {MOST_VIEWS} views: remove one first.")
    with transaction.atomic():
        view, _ = SavedView.objects.update_or_create(
            user=owner, name=name, defaults={"query": kept.urlencode().replace("\x00", "")}
        )
        audit.write_down(acting, "save", view)
    return view


def remove_view(*, acting: Acting, view: SavedView) -> None:
    if view.user_id != _person(acting).pk:
        raise Forbidden("This view is somebody else's.")
    with transaction.atomic():
        audit.write_down(acting, "delete", view)
        view.delete()


def _person(acting: Acting) -> User:
    if acting.user is None:
        raise Forbidden("Only people have views.")
    return acting.user
