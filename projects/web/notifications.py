"""Here people choose what they are told and where, and see what was told."""

from typing import Any

from django import forms
from django.http import Http404, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from berth.core.errors import BerthError
from berth.web.faults import take_faults
from berth.web.pages import Request, done, page, signed_in
from berth.web.paging import slice_of
from projects.access import Action, administered_departments, administered_projects, may
from projects.acting import Acting
from projects.models import Delivery, Subscription
from projects.models.subscriptions import MINUTES_MOST
from projects.selectors import departments, find_department, find_project, projects, subscriptions
from projects.services import subscriptions as service

MINE, PLATFORM = "mine", "platform"
MOST_TOLD = 30
TITLES = {
    "preempted": "It had to give way",
    "started": "It started",
    "completed": "It completed",
    "failed": "It failed",
    "cancelled": "It was cancelled",
    "waiting": "It waits for long",
    "budget": "A budget's warning is due",
    "pool": "A node pool is failing",
}


class SubscriptionForm(forms.Form):
    of = forms.ChoiceField(label="Of")
    news = forms.MultipleChoiceField(
        label="Tell when", choices=list(TITLES.items()), widget=forms.CheckboxSelectMultiple
    )
    waiting_minutes = forms.IntegerField(
        label="Long is, minutes",
        min_value=1,
        max_value=MINUTES_MOST,
        widget=forms.NumberInput(attrs={"class": "short"}),
    )
    to = forms.CharField(
        label="To", max_length=2000, help_text="A mail address, https://…, or slack:https://… for a chat"
    )


@signed_in
@require_GET
def index(request: Request) -> HttpResponse:
    found = slice_of(
        subscriptions(request.acting), {"made": "pk"}, sort="made", default="made",
        cursor=request.GET.get("cursor", ""),
    )  # fmt: skip
    rows = found.rows
    told = Delivery.objects.filter(subscription__in=[row.pk for row in rows]).order_by("-pk")[:MOST_TOLD]
    context = {
        "slice": found,
        "subscriptions": [
            (row, service.shown_address(row.to), [TITLES[word] for word in row.news]) for row in rows
        ],
        "told": [(row, service.shown_address(row.to), TITLES.get(row.kind, row.kind)) for row in told],
    }
    return page(request, "projects/notifications.html", context, inner="projects/notification_rows.html")


@signed_in
@require_http_methods(["GET", "POST"])
def add(request: Request) -> HttpResponse:
    initial = {
        "of": MINE, "news": ["preempted", "failed", "waiting"], "waiting_minutes": 60,
        "to": getattr(request.user, "email", ""),
    }  # fmt: skip
    form = SubscriptionForm(request.POST or None, initial=initial, auto_id="told_%s")
    form.fields["of"].choices = _places(request.acting)  # type: ignore[attr-defined]
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        try:
            made = service.subscribe(
                acting=request.acting, place=_place(request, said["of"]), to=said["to"], news=said["news"],
                waiting_minutes=said["waiting_minutes"],
            )  # fmt: skip
        except BerthError as error:
            take_faults(form, error)
        else:
            return done(request, f"News of {made.place} go there.", to=reverse("notifications"))
    context = {
        "form": form,
        "title": "Be told",
        "text": "News are tried for several hours where they do not arrive at once.",
        "label": "Save",
        "post_to": request.path,
        "back": reverse("notifications"),
    }
    status = 422 if form.errors else 200
    return page(request, "web/form.html", context, inner="web/form_body.html", status=status)


@signed_in
@require_http_methods(["GET", "POST"])
def remove(request: Request, subscription_id: int) -> HttpResponse:
    row: Subscription | None = subscriptions(request.acting).filter(pk=subscription_id).first()
    if row is None:
        raise Http404
    if request.method == "POST":
        service.unsubscribe(acting=request.acting, subscription=row)
        return done(request, "Nothing goes there any more.", to=reverse("notifications"))
    context = {
        "title": f"Stop telling {service.shown_address(row.to)}?",
        "warning": f"It was told of {row.place}. What is on its way already still arrives.",
        "label": "Stop",
        "post_to": request.path,
        "back": reverse("notifications"),
        "danger": True,
    }
    return page(request, "web/confirm.html", context, inner="web/confirm_form.html")


def _places(acting: Acting) -> list[tuple[str, str]]:
    found = [(MINE, "My own work")]
    found += [
        (f"projects/{each.name}", f"Project {each.name}")
        for each in projects(acting).filter(pk__in=administered_projects(acting))
    ]
    found += [
        (f"departments/{each.name}", f"Department {each.name}")
        for each in departments(acting).filter(pk__in=administered_departments(acting))
    ]
    if may(acting, Action.ADMINISTER):
        found.append((PLATFORM, "The whole platform"))
    return found


def _place(request: Request, said: str) -> Any:
    if said == MINE:
        return request.acting.user
    if said == PLATFORM:
        return None
    kind, _, name = said.partition("/")
    find = find_department if kind == "departments" else find_project
    return find(request.acting, name)
