"""Form for autoscaler settings."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from django import forms

from berth.core.errors import BerthError
from berth.server.web.faults import add_form_errors, add_remaining_errors
from berth.server.web.forms import Form, FormSection
from pools.web.duration_field import PreciseDurationField
from projects.web.services.conditions import TITLES

OUT, IN, DURATIONS = "scale_out_policy", "scale_in_policy", "durations"
PERCENT = 100


@dataclass(frozen=True, slots=True)
class SettingField:
    """Form field for a path in the settings document. Fractions are entered as percentages."""

    path: tuple[str, ...]
    label: str
    kind: str = "whole"  # number format: whole, percent or duration
    hint: str = ""
    max_percent: int | None = PERCENT

    @property
    def name(self) -> str:
        return "__".join(self.path)

    def field(self) -> forms.Field:
        options: dict[str, Any] = {"label": self.label, "help_text": self.hint}
        if self.kind == "duration":
            return PreciseDurationField(**options)
        if self.kind == "whole":
            return forms.IntegerField(**options)
        return forms.FloatField(min_value=0, max_value=self.max_percent, **options)


@dataclass(frozen=True, slots=True)
class ConditionSettings:
    """Fields for the threshold and duration of a scaling condition, shown on one line of the form."""

    title: str
    threshold: SettingField
    duration: SettingField

    @property
    def settings(self) -> tuple[SettingField, SettingField]:
        return self.threshold, self.duration


def _condition_fields(
    policy: str, threshold: str, name: str, label: str, kind: str, *, max_percent: int | None = PERCENT
) -> ConditionSettings:
    return ConditionSettings(
        TITLES[name],
        SettingField((policy, threshold), label, kind, max_percent=max_percent),
        SettingField((policy, DURATIONS, name), "Held for", "duration"),
    )


GENERAL = (
    SettingField(("min_engines",), "Min engines", "whole"),
    SettingField(("max_engines",), "Max engines", "whole"),
)
OUT_CONDITIONS = (
    _condition_fields(OUT, "token_usage_threshold", "token_usage_high", "Token usage above (%)", "percent"),
    _condition_fields(OUT, "queue_depth_per_engine", "queue_backlog", "Queue per engine above", "whole"),
    _condition_fields(
        OUT, "queue_time_p95_threshold", "queue_latency_high", "Queue time p95 above", "duration"
    ),
    _condition_fields(OUT, "ttft_p95_threshold", "ttft_high", "TTFT p95 above", "duration"),
)
SCALE_OUT = (
    SettingField((OUT, "max_delta"), "Engines per step", "whole", "Maximum number added at once."),
    SettingField(("scale_out_cooldown_secs",), "Cooldown", "duration"),
)
IN_CONDITIONS = (
    _condition_fields(IN, "token_usage_threshold", "token_usage_low", "Token usage below (%)", "percent"),
    _condition_fields(IN, "queue_depth_threshold", "no_queue", "Queue at most", "whole"),
    _condition_fields(
        IN,
        "throughput_variance_threshold",
        "throughput_stable",
        "Variance below (%)",
        "percent",
        max_percent=None,
    ),
)
SCALE_IN = (
    SettingField(
        (IN, "projected_usage_max"),
        "Projected usage below (%)",
        "percent",
        "Token usage of the remaining engines.",
    ),
    SettingField((IN, "max_delta"), "Engines per step", "whole", "Maximum number removed at once."),
    SettingField(("scale_in_cooldown_secs",), "Cooldown", "duration"),
)
INTERVALS = (
    SettingField(("metrics_interval_secs",), "Metrics interval", "duration"),
    SettingField(("evaluation_interval_secs",), "Evaluation interval", "duration"),
    SettingField(("condition_window_secs",), "Condition window", "duration"),
)
CONDITION_SETTINGS = tuple(
    setting for condition in (*OUT_CONDITIONS, *IN_CONDITIONS) for setting in condition.settings
)
SETTINGS = (*GENERAL, *CONDITION_SETTINGS, *SCALE_OUT, *SCALE_IN, *INTERVALS)

FIELDS_BY_PATH = {".".join(one.path): one.name for one in SETTINGS}


class AutoscalerForm(Form):
    """Form with one field per autoscaler setting. Settings without a field stay unchanged."""

    enabled = forms.BooleanField(label="Enabled", required=False)

    def __init__(self, data: Any, *, current: Mapping[str, Any]) -> None:
        initial = {"enabled": current["enabled"]} | {one.name: _field_value(one, current) for one in SETTINGS}
        super().__init__(data, initial=initial, auto_id="scaler_%s")
        self.current = current
        self.fields.update({one.name: one.field() for one in SETTINGS})

    def sections(self) -> Sequence[FormSection]:
        return (
            FormSection("Engines", ("enabled", *_names(GENERAL))),
            FormSection(
                "Scale out",
                _names(SCALE_OUT),
                "If any of these conditions is met.",
                lines=_condition_lines(OUT_CONDITIONS),
            ),
            FormSection(
                "Scale in",
                _names(SCALE_IN),
                "If all of these conditions are met.",
                lines=_condition_lines(IN_CONDITIONS),
            ),
            FormSection(
                "Intervals", _names(INTERVALS), "How often metrics are read and evaluated.", is_folded=True
            ),
        )

    def document(self) -> dict[str, Any]:
        """Return the settings as a document. The form must be valid."""
        document = deepcopy(dict(self.current)) | {"enabled": self.cleaned_data["enabled"]}
        for one in SETTINGS:
            value, target = self.cleaned_data[one.name], document
            for key in one.path[:-1]:
                target = target[key]
            target[one.path[-1]] = round(value / PERCENT, 6) if one.kind == "percent" else value
        return document

    def add_problems(self, error: BerthError) -> None:
        """Show each problem next to its field, and problems without a field at the top of the form."""
        add_form_errors(self, error, FIELDS_BY_PATH)

    def add_remaining_errors(self, check: Callable[[dict[str, Any]], object]) -> None:
        """Add the errors that `check` finds in the document built from the form.

        In this document, invalid fields have their stored values.
        """
        invalid = self.reset_invalid_fields()
        add_remaining_errors(self, lambda: check(self.document()), FIELDS_BY_PATH, invalid=invalid)


def _names(settings: Sequence[SettingField]) -> tuple[str, ...]:
    return tuple(one.name for one in settings)


def _condition_lines(conditions: Sequence[ConditionSettings]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((condition.title, _names(condition.settings)) for condition in conditions)


def _field_value(setting: SettingField, document: Mapping[str, Any]) -> Any:
    value: Any = document
    for key in setting.path:
        value = value[key]
    value = round(value * PERCENT, 4) if setting.kind == "percent" else value
    return int(value) if isinstance(value, float) and value.is_integer() else value
