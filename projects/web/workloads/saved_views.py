"""Pages that save and delete views of the workload list."""

from django import forms
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from berth.core.errors import BerthError
from berth.server.web.faults import add_form_errors
from berth.server.web.pages import Request, done, page, signed_in
from projects.models import SavedView
from projects.services.people.views import remove_view, save_view


class ViewForm(forms.Form):
    name = forms.CharField(
        label="Name", max_length=60, help_text="An existing view with this name is overwritten"
    )
    query = forms.CharField(widget=forms.HiddenInput, required=False)


@signed_in
@require_http_methods(["GET", "POST"])
def save(request: Request) -> HttpResponse:
    form = ViewForm(request.POST or None, initial={"query": request.GET.urlencode()}, auto_id="view_%s")
    if request.method == "POST" and form.is_valid():
        try:
            view = save_view(actor=request.actor, **form.cleaned_data)
        except BerthError as error:
            add_form_errors(form, error)
        else:
            to = f"{reverse('workloads')}?{view.query}"
            return done(request, f"View {view.name} saved.", to=to, leave=True)
    context = {
        "form": form,
        "title": "Save view",
        "text": "Saves the current filters, columns and order. Only you can see the view.",
        "label": "Save view",
        "post_to": request.path,
        "back": reverse("workloads"),
    }
    status = 422 if form.errors else 200
    return page(request, "web/form.html", context, inner="web/form_body.html", status=status)


@signed_in
@require_http_methods(["GET", "POST"])
def delete(request: Request, view_id: int) -> HttpResponse:
    view = get_object_or_404(SavedView, pk=view_id, user=request.actor.user)
    if request.method == "POST":
        remove_view(actor=request.actor, view=view)
        return done(request, f"View {view.name} deleted.", to=reverse("workloads"), leave=True)
    context = {
        "title": f"Delete the view {view.name}?",
        "warning": "Workloads are not affected.",
        "label": "Delete view",
        "post_to": request.path,
        "back": reverse("workloads"),
        "danger": True,
    }
    return page(request, "web/confirm.html", context, inner="web/confirm_form.html")
