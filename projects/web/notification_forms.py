"""Forms for notification subscriptions."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from django import forms
from django.utils.html import format_html_join

from berth.core.spec.values.addresses import CHAT_PREFIX, Channel, detect_channel
from berth.server.web.forms import Form
from projects.models import Subscription
from projects.models.notifications import MAX_PENDING_MINUTES
from projects.services.notifications import subscriptions as service

MINE, PLATFORM = "mine", "platform"
DEFAULT_MINUTES = 60  # default of the pending threshold
CHANNELS = {Channel.MAIL: "Email", Channel.CHAT: "Slack", Channel.WEBHOOK: "Webhook"}
ADDRESS_HINTS = {
    Channel.MAIL: "An email address, for example ada@example.com.",
    Channel.CHAT: "The URL of an incoming webhook in Slack.",
    Channel.WEBHOOK: "The URL to which events are sent as JSON.",
}
ADDRESS_ADVICE = {
    Channel.MAIL: "Enter an email address, for example ada@example.com.",
    Channel.CHAT: "Enter the URL of a Slack webhook, for example https://hooks.slack.com/services/….",
    Channel.WEBHOOK: "Enter a URL, for example https://example.com/hook.",
}
TITLES = {
    "preempted": "Workload evicted",
    "started": "Workload started",
    "completed": "Workload completed",
    "failed": "Workload failed",
    "cancelled": "Workload cancelled",
    "unschedulable": "Workload unschedulable",
    "pending": "Pending for a long time",
    "idle": "GPUs idle for a long time",
    "budget": "Budget threshold reached",
    "schedule": "Schedule paused or rejected",
    "pool": "Node pool failing",
}


class CheckboxSelectMultiple(forms.CheckboxSelectMultiple):
    """Checkboxes that can be shown for certain scopes only.

    `shown_for` maps the value of a checkbox to its scopes. All other checkboxes are always shown.
    """

    shown_for: Mapping[str, Sequence[str]] = {}

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **kwargs)
        if scopes := self.shown_for.get(str(value)):
            option["attrs"]["data-shown-for"] = f"scope={'|'.join(scopes)}"
        return option


class SubscriptionForm(Form):
    scope = forms.ChoiceField(label="Scope")
    events = forms.MultipleChoiceField(
        label="Events", choices=list(TITLES.items()), widget=CheckboxSelectMultiple
    )
    pending_minutes = forms.IntegerField(
        label="Pending threshold (minutes)",
        min_value=1,
        max_value=MAX_PENDING_MINUTES,
        required=False,
        widget=forms.NumberInput(attrs={"class": "short"}),
    )
    channel = forms.ChoiceField(label="Channel", choices=list(CHANNELS.items()))
    to = forms.CharField(
        label="To",
        max_length=2000,
        widget=forms.TextInput(attrs={"data-secret": ""}),  # a webhook address is a secret
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_display_hints("pending_minutes", shown_for="events=pending")
        self.fields["to"].help_text = format_html_join(
            "", '<span data-shown-for="channel={}">{}</span>', ADDRESS_HINTS.items()
        )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        needs_threshold = "pending" in cleaned.get("events", ())
        if needs_threshold and cleaned.get("pending_minutes", 0) is None:
            self.add_error("pending_minutes", "Enter a number of minutes.")
        if (channel := cleaned.get("channel")) and (to := cleaned.get("to")):
            self._clean_address(Channel(channel), to)
        return cleaned

    def _clean_address(self, channel: Channel, to: str) -> None:
        """Add the Slack prefix to the URL of a Slack channel. Report an address of another channel."""
        detected = detect_channel(to)
        if channel == Channel.CHAT and detected == Channel.WEBHOOK:
            self.cleaned_data["to"] = f"{CHAT_PREFIX}{to}"
        elif detected != channel and not (channel == Channel.WEBHOOK and detected == Channel.CHAT):
            self.add_error("to", ADDRESS_ADVICE[channel])

    def set_scopes(self, choices: Sequence[tuple[str, str]]) -> None:
        """Offer the scopes, and show each event only for the scopes that can send it."""
        cast("forms.ChoiceField", self.fields["scope"]).choices = choices
        scopes = [scope for scope, _ in choices]
        cast("CheckboxSelectMultiple", self.fields["events"].widget).shown_for = {
            "budget": [scope for scope in scopes if scope != MINE],
            "schedule": [scope for scope in scopes if scope != MINE],
            "pool": [PLATFORM],
        }


class EditSubscriptionForm(SubscriptionForm):
    """Form for an existing subscription, whose scope cannot change. A stored webhook address is not shown."""

    def __init__(self, *args: Any, row: Subscription, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row = row
        del self.fields["scope"]
        allowed = service.allowed_events(row.user or row.project or row.department)
        events = cast("forms.MultipleChoiceField", self.fields["events"])
        events.choices = [(event, title) for event, title in TITLES.items() if event in allowed]
        if row.channel != Channel.MAIL:
            self.fields["to"].required = False
            address = service.display_address(row.to).removeprefix(CHAT_PREFIX)
            self.fields["to"].help_text = f"Leave empty to keep {address}"

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        channel = cleaned.get("channel", self.row.channel)
        if channel != self.row.channel and not cleaned.get("to") and "to" not in self.errors:
            self.add_error("to", ADDRESS_ADVICE[Channel(channel)])
        return cleaned
