"""Pages that scale a service and configure its autoscaler."""

from typing import Any

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from berth.core.errors import BerthError
from berth.core.wording.words import format_count
from berth.server.web.faults import form_errors
from berth.server.web.forms import Form
from berth.server.web.pages import (
    Request,
    confirm_page,
    form_page,
    render_refusal,
    signed_in,
    success_response,
)
from projects.access import Action, require
from projects.models import InferenceEngine, ScaleRequest, Service
from projects.queries.services import find_request, find_service
from projects.services.inference import autoscalers, requests
from projects.services.inference.addresses import new_addresses
from projects.services.inference.rules import ScaleParameters, describe_active_request, engine_count
from projects.web.services.autoscaler_form import AutoscalerForm
from projects.web.services.replays import preview_settings
from projects.web.services.serving import engine_status

NO_CHANGE = "NOOP"
FIELDS = {"num_replicas": "num_replicas", "engine_urls": "engine_urls"}


class ScaleOutForm(Form):
    num_replicas = forms.IntegerField()
    engine_urls = forms.CharField(
        label="External engines", required=False, widget=forms.Textarea(attrs={"rows": 3}),
        help_text="One URL per line, instead of a number of engines, for example http://198.51.100.10:30000.",
    )  # fmt: skip

    def __init__(self, *args: Any, engines: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        least = engines + 1  # a request for fewer engines would change nothing
        self.fields["num_replicas"] = forms.IntegerField(
            label="Total engines", min_value=least, required=False, help_text=f"At least {least}."
        )

    def parameters(self) -> ScaleParameters:
        urls = new_addresses(self.cleaned_data["engine_urls"].split())
        return ScaleParameters(num_replicas=self.cleaned_data["num_replicas"] or 0, urls=urls)


class ScaleInForm(Form):
    num_replicas = forms.IntegerField(label="Remaining engines", min_value=1)
    force = forms.BooleanField(label="Abort running requests", required=False)
    confirmed = forms.IntegerField(required=False, widget=forms.HiddenInput)


@signed_in
@require_http_methods(["GET", "POST"])
def scale_out(request: Request, service: str) -> HttpResponse:
    row = _find_service(request, service)
    if running := requests.active_request(row):
        return _render_scaling_refusal(request, row, running)
    count = engine_count(row)
    form = ScaleOutForm(
        request.POST or None, engines=count, initial={"num_replicas": count + 1}, auto_id="scale_%s"
    )
    if request.method == "POST" and form.is_valid():
        with form_errors(form, FIELDS):
            accepted = requests.scale_out(actor=request.actor, service=row, parameters=form.parameters())
            if accepted.status != NO_CHANGE:
                return success_response(request, f"{row} is scaling out.", to=_service_url(row))
            form.add_error(None, accepted.message)
    text = (
        f"Currently {format_count(count, 'engine')}. New engines are queued for GPUs like any other workload."
    )
    title = f"Scale out {row}"
    return form_page(request, form, title=title, label="Scale out", back=_service_url(row), text=text)


@signed_in
@require_http_methods(["GET", "POST"])
def scale_in(request: Request, service: str) -> HttpResponse:
    """Show the inference engines that a scale-in would remove. Request the scale-in once the user has
    confirmed.
    """
    row = _find_service(request, service)
    if running := requests.active_request(row):
        return _render_scaling_refusal(request, row, running)
    initial = {"num_replicas": max(row.initial_engines, engine_count(row) - 1)}
    form = ScaleInForm(request.POST or None, initial=initial, auto_id="scale_%s")
    order_text = f"The newest engines are removed first. The {row.initial_engines} initial engines stay."
    text = f"{order_text} Running requests are finished first."
    if request.method == "POST" and form.is_valid():
        values = form.cleaned_data
        parameters = ScaleParameters(num_replicas=values["num_replicas"], force=values["force"])
        with form_errors(form, FIELDS):
            preview = requests.scale_in(actor=request.actor, service=row, parameters=parameters, dry_run=True)
            if preview.engines and values["confirmed"] != values["num_replicas"]:
                confirmation = ScaleInForm(
                    initial={**values, "confirmed": values["num_replicas"]}, auto_id="scale_%s"
                )
                return form_page(
                    request,
                    confirmation,
                    title=f"Remove {format_count(len(preview.engines), 'engine')} from {row}?",
                    label="Remove engines",
                    danger=True,
                    back=_service_url(row),
                    text=text,
                    names="Engines to remove",
                    work=[_describe_engine(engine) for engine in preview.engines],
                )
            accepted = requests.scale_in(actor=request.actor, service=row, parameters=parameters)
            if accepted.status != NO_CHANGE:
                return success_response(request, f"{row} is scaling in.", to=_service_url(row))
            form.add_error("num_replicas", accepted.message)
    return form_page(
        request, form, title=f"Scale in {row}", label="Preview", back=_service_url(row), text=text
    )


def _describe_engine(engine: InferenceEngine) -> str:
    """Return text such as "engine_3 (serving), http://10.0.4.11:23004"."""
    status = engine_status(engine).title
    return f"{engine.name} ({status[:1].lower()}{status[1:]}), {engine.url or 'no address yet'}"


def _render_scaling_refusal(request: Request, row: Service, running: ScaleRequest) -> HttpResponse:
    """Explain that another scale request is in progress, and offer to cancel it if possible."""
    may_cancel = running.direction == "scale_out" and running.status != "ROLLING_BACK"
    cancel_url = reverse("service-cancel", args=[row.workload_id, running.pk])
    return render_refusal(
        request,
        title=f"{row} is already scaling",
        text=describe_active_request(running),
        action=("Cancel scale-out", cancel_url) if may_cancel else None,
        danger=True,
        back=_service_url(row),
        crumbs=[("Services", reverse("services")), (str(row), _service_url(row))],
        status=409 if request.method == "POST" else 200,
    )


@signed_in
@require_http_methods(["GET", "POST"])
def cancel(request: Request, service: str, request_id: str) -> HttpResponse:
    row = _find_service(request, service)
    scale_request = find_request(row, "scale_out", request_id)
    if request.method == "POST":
        requests.cancel(actor=request.actor, request=scale_request)
        return success_response(request, f"Cancelling the scale-out of {row}.", to=_service_url(row))
    engine_names = [
        engine.name for engine in scale_request.added.filter(ended_at__isnull=True).order_by("number")
    ]
    return confirm_page(
        request, back=_service_url(row), title=f"Cancel the scale-out of {row}?", label="Cancel scale-out",
        warning="Engines added by this scale-out are released. Engines that existed before stay.",
        dismiss="Keep scaling", names="Engines to release", work=engine_names, danger=True,
    )  # fmt: skip


@signed_in
@require_http_methods(["GET", "POST"])
def switch_autoscaler(request: Request, service: str, word: str) -> HttpResponse:
    row, on = _find_service(request, service), word == "on"
    verb = "Enable" if on else "Disable"
    if request.method == "POST":
        autoscalers.enable(actor=request.actor, service=row, enabled=on)
        return success_response(
            request, f"{row} autoscaler {'enabled' if on else 'disabled'}.", to=_service_url(row)
        )
    warning = (
        "The autoscaler scales the service between its minimum and maximum when its conditions are met."
        if on
        else "Metrics are still collected, but the service is not scaled. Requests in progress continue."
    )
    return confirm_page(
        request, back=_service_url(row), title=f"{verb} the {row} autoscaler?", label=f"{verb} autoscaler",
        warning=warning,
    )  # fmt: skip


@signed_in
@require_http_methods(["GET", "POST"])
def settings(request: Request, service: str) -> HttpResponse:
    """Edit an autoscaler's settings, or preview them with the last day's metrics."""
    row = _find_service(request, service)
    form = AutoscalerForm(request.POST or None, current=autoscalers.full_settings(row.autoscaler))
    context: dict[str, Any] = {}
    if request.method == "POST" and form.is_valid():
        try:
            if request.POST.get("check"):
                checked = autoscalers.validate_settings(form.document())
                context = {"was_checked": True, "preview": preview_settings(row, checked, timezone.now())}
            else:
                autoscalers.configure(actor=request.actor, service=row, settings=form.document())
                return success_response(
                    request, f"Autoscaler settings for {row} saved.", to=_service_url(row)
                )
        except BerthError as error:
            form.add_problems(error)
    elif request.method == "POST":
        form.add_remaining_errors(autoscalers.validate_settings)
    return form_page(
        request,
        form,
        title="Edit autoscaler",
        crumbs=[("Services", reverse("services")), (str(row), _service_url(row))],
        text="The preview applies the settings to the recorded metrics of the last day.",
        label="Save settings",
        back=_service_url(row),
        check="Preview settings",
        result_template="projects/services/autoscaler_preview.html",
        **context,
    )


def _find_service(request: Request, service: str) -> Service:
    row = find_service(request.actor, service)
    require(request.actor, Action.OPERATE, row.workload)
    return row


def _service_url(row: Service) -> str:
    return reverse("service", args=[row.workload_id])
