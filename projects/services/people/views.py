"""Save and delete views of the workload list. A view is a named set of filters and columns."""

from django.contrib.auth.models import User
from django.db import transaction
from django.http import QueryDict

from berth.core.errors import Conflict, Forbidden, Invalid
from berth.core.problems import Problem, format_value
from projects.actor import Actor
from projects.models import SavedView
from projects.services import audit

MAX_VIEWS = 30
MAX_QUERY_LENGTH = 2000
DROPPED_KEYS = ("cursor", "csrfmiddlewaretoken", "format")


def save_view(*, actor: Actor, name: str, query: str) -> SavedView:
    """Save a view for the acting user.

    A view with the same name is replaced. Raises Invalid for an invalid name, Conflict for too many views,
    and Forbidden if the actor is not a user.
    """
    owner = _require_user(actor)
    name = name.strip()
    if not 1 <= len(name) <= 60 or "\x00" in name:
        raise Invalid([Problem("name", "is not a valid name", format_value(name), "1 to 60 characters")])
    saved = QueryDict(query[:MAX_QUERY_LENGTH], mutable=True)
    for key in DROPPED_KEYS:
        saved.pop(key, None)
    if SavedView.objects.filter(user=owner).exclude(name=name).count() >= MAX_VIEWS:
        raise Conflict(f"You already have {MAX_VIEWS} views. Delete one first.")
    with transaction.atomic():
        view, _ = SavedView.objects.update_or_create(
            user=owner, name=name, defaults={"query": saved.urlencode().replace("\x00", "")}
        )
        audit.write_entry(actor, "save", view)
    return view


def remove_view(*, actor: Actor, view: SavedView) -> None:
    if view.user_id != _require_user(actor).pk:
        raise Forbidden("This view belongs to another user. Save a view of your own.")
    with transaction.atomic():
        audit.write_entry(actor, "delete", view)
        view.delete()


def _require_user(actor: Actor) -> User:
    if actor.user is None:
        raise Forbidden("Only users have saved views. Sign in as a user.")
    return actor.user
