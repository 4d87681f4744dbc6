"""Pages that save and delete views of the workload list."""

from django import forms
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from berth.server.web.faults import form_errors
from berth.server.web.forms import Form
from berth.server.web.pages import Request, confirm_page, form_page, signed_in, success_response
from projects.models import SavedView
from projects.services.people.views import remove_view, save_view


class ViewForm(Form):
    name = forms.CharField(
        label="Name", max_length=60, help_text="An existing view with this name is overwritten."
    )
    query = forms.CharField(widget=forms.HiddenInput, required=False)


@signed_in
@require_http_methods(["GET", "POST"])
def save(request: Request) -> HttpResponse:
    form = ViewForm(request.POST or None, initial={"query": request.GET.urlencode()}, auto_id="view_%s")
    if request.method == "POST" and form.is_valid():
        with form_errors(form):
            view = save_view(actor=request.actor, **form.cleaned_data)
            to = f"{reverse('workloads')}?{view.query}"
            return success_response(request, f"View {view.name} saved.", to=to, leave=True)
    return form_page(
        request,
        form,
        title="Save view",
        text="Saves the current filters, columns and order. Only you can see the view.",
        label="Save view",
        back=reverse("workloads"),
    )


@signed_in
@require_http_methods(["GET", "POST"])
def delete(request: Request, view_id: int) -> HttpResponse:
    view = get_object_or_404(SavedView, pk=view_id, user=request.actor.user)
    if request.method == "POST":
        remove_view(actor=request.actor, view=view)
        return success_response(request, f"View {view.name} deleted.", to=reverse("workloads"), leave=True)
    return confirm_page(
        request,
        title=f"Delete the view {view.name}?",
        warning="Workloads are not affected.",
        label="Delete view",
        back=reverse("workloads"),
        danger=True,
    )
