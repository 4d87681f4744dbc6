"""Suggested users for the filter by submitter of the workload list."""

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from berth.server.web.pages import Request, signed_in
from projects.actor import Actor
from projects.selectors import members, users, workloads

SUGGESTIONS_MAX = 20


@signed_in
@require_GET
def suggest(request: Request) -> HttpResponse:
    text = request.GET.get("user", "").replace("\x00", "").strip()[:150]
    names = matching_usernames(request.actor, text)
    own = request.actor.user.username if request.actor.user else ""
    if own and ("me".startswith(text.lower()) or own in names):
        names = [own, *(name for name in names if name != own)]
    return render(request, "projects/workloads/submitters.html", {"names": names, "own": own})


def matching_usernames(actor: Actor, text: str) -> list[str]:
    """Return the first usernames that contain the text. Users that the actor cannot see are omitted.

    Actors can see the members of visible projects, the submitters of visible workloads, and the users that
    they administer.
    """
    submitted = Exists(workloads(actor).filter(submitted_by=OuterRef("pk")))
    visible = Q(pk__in=members(actor).values("user")) | Q(pk__in=users(actor).values("pk")) | Q(submitted)
    rows = User.objects.filter(visible, username__icontains=text).order_by("username")
    return list(rows.values_list("username", flat=True)[:SUGGESTIONS_MAX])
