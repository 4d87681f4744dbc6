"""Form fields for a workload document, and their choices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berth.core.problems import join_path
from berth.core.values.priorities import HIGHEST, LOWEST, PREEMPTIBLE_BELOW
from berth.documents.values import Location, value_at
from scheduler.web.submit.form import field_kinds
from scheduler.web.submit.form.array_text import MATRIX, TASKS, VALUES, count_parameter_sets
from scheduler.web.submit.form.field_choices import (
    ENGINES,
    FLAGS,
    GOALS,
    KINDS,
    NOTIFICATION_EVENTS,
    PULL_POLICIES,
    RESTARTS,
    ROUTERS,
    Choices,
    synonyms_of,
)
from scheduler.web.submit.form.field_kinds import FieldKind
from scheduler.web.submit.form.priorities import priority_choices, priority_synonyms
from scheduler.web.submit.form.role_locations import list_length, role_locations
from scheduler.web.submit.form.secret_choices import SecretChoice

MIN_REPLICAS, MAX_REPLICAS = "at_least", "at_most"  # keys of the two replica fields
PRIORITY_HINT = f"Or {LOWEST} to {HIGHEST} in the document"
PREEMPTIBLE_HINT = f"By default, below priority {PREEMPTIBLE_BELOW}"
SECRETS_HINT = (
    "NAME=VARIABLE, or NAME=file:FILE for a file in $BERTH_SECRETS_DIR; one per line. "
    "Personal secrets are named personal/NAME"
)
NOTICE_HINT = "Sent before SIGTERM, such as USR1"
OUTPUTS_HINT = "Files and directories to store after each pod has ended, one path per line: results"
KEEP_HINT = "How long the files of a failed pod are kept, for example 30m"
RETRY_HINT = (
    "Instead of a restart policy, one rule per line: 75,SIGKILL max=5 backoff=30s other_node. "
    "The first rule that lists a failure applies"
)
MORE_OF_WORKLOAD = "Environment, labels and working directory"
MORE_OF_ROLE = "GPU models, GPU memory, topology and role overrides"
MORE_OF_SCHEDULING = "Preemption, restarts, topology and timeouts"
WORKLOAD_TITLE, SCHEDULING_TITLE, GIT_TITLE = "Workload", "Scheduling", "Code from Git"
GIT_HINT = "https://HOST/PATH or USER@HOST:PATH. Berth fetches the files once, after the submission"
GIT_ACCESS_HINT = "Private key for SSH, or a token, if the repository is private"
NO_LEVELS, NO_MODELS = "No topology levels in the allowed pools.", "No GPU models in the allowed pools."
HOST_KEY_HINT = "Type and public key of the server, unless an admin has stored them: ssh-ed25519 AAAA..."
AUTOSCALER_HINT = "Leave both empty for a fixed number"
SESSION_HINT = (
    "The session lasts until this command ends. Open a shell in its tab Terminal or with "
    "`berth exec -it NAME -- bash`. For JupyterLab, start it here and add `ports` to the document"
)
PORTS_HINT = "The session lasts until this command ends. Its page has a button for each port"
STOP_HINT = "Cancels tasks worse than the median of the others"
ARRAY_HINT = "Number of tasks, or indexes such as 0-29"
SELECTION_HINT = "Select some of the tasks, such as 0-2"
MATRIX_HINT = "One variable per line, such as LR=0.1, 0.01. One task for each combination"
VALUES_HINT = "One task per line, such as LR=0.1 DEPTH=2, or a value for BERTH_ARRAY_VALUE"
IDLE_HINT = "Time without output or requests, such as 2h"
GRACE_HINT = "Between SIGTERM and SIGKILL"
LEAD_HINT = "Between the signal and SIGTERM"
IMAGE_HINT = "Without an image, pods run the node's own programs"
MAX_RUNTIME_HINT = "Stops a run after this time, such as 2h or 7d"


@dataclass(frozen=True, slots=True)
class FormField:
    """Form field. `at` is its location in the document."""

    at: Location
    label: str
    kind: FieldKind = field_kinds.TEXT
    hint: str = ""
    choices: Choices = ()
    synonyms: Mapping[str, str] | None = None  # choices by other values, if not those of `choices`
    suggestions: str = ""  # name of the suggestion list
    default: str = ""  # meaning of an empty field
    many: bool = False
    wide: bool = False
    initial: tuple[str, ...] = ()  # values that apply if the document specifies none
    secrets: Sequence[SecretChoice] | None = None  # available secrets, or None for other fields
    empty: str = ""  # text shown if the node pools offer no choices
    guide: str = ""  # page of the documentation to which the hint links
    is_hidden: bool = False  # True for an empty field whose value another field excludes
    unfolds: bool = True  # True if a value in this field expands the collapsed options

    @property
    def path(self) -> str:
        return join_path(self.at)

    def choice_for(self, value: str) -> str:
        """Return the choice that means the same as the document's value, or the value if there is none."""
        return (self.synonyms or synonyms_of(self.choices)).get(value, value)


@dataclass(frozen=True, slots=True)
class FormPart:
    """Group of form fields under one title.

    `at` is its location in the document, or None if the user cannot remove the group.
    """

    title: str
    fields: tuple[FormField, ...]
    more: tuple[FormField, ...] = ()  # fields in a collapsed section with the title `more_title`
    more_title: str = ""
    at: Location | None = None
    add: str = ""  # path of the document's list if the user can add another group like this one
    summary: str = ""  # purpose of a group that is collapsed until it has values


@dataclass(frozen=True, slots=True)
class FormChoices:
    """Names and other choices that the form offers to the user."""

    projects: Sequence[str] = ()
    pools: Sequence[str] = ()
    models: Sequence[str] = ()  # GPU models in the allowed pools
    levels: Sequence[str] = ()  # topology levels of the allowed pools
    secrets: Sequence[SecretChoice] = ()  # secrets that the pods may receive
    git_secrets: Sequence[SecretChoice] = ()
    images: Sequence[str] = ()  # container images used before
    runs_images: bool = False  # True if any pool runs container images
    for_template: bool = False  # True for a template, whose users set the name and project
    for_edit: bool = False  # True for a stored workload, which cannot become an array


def build_parts(data: Mapping[str, Any], offer: FormChoices) -> list[FormPart]:
    roles = role_locations(data)
    return [
        FormPart(WORKLOAD_TITLE, *_workload_fields(data, offer), more_title=MORE_OF_WORKLOAD),
        *([FormPart("Service", _service_fields(data))] if data.get("kind") == "service" else ()),
        *(_role_part(data, at, offer, alone=len(roles) == 1, last=at == roles[-1]) for at in roles),
        FormPart(
            SCHEDULING_TITLE, _scheduling_fields(data, offer), _advanced_fields(offer), MORE_OF_SCHEDULING
        ),
        FormPart("Secrets and outputs", _file_fields(offer), summary="Secrets to receive, files to store"),
        *(() if offer.for_edit or _excludes_arrays(data) else (_array_part(data),)),
        *(() if _has_uploaded_code(data) else (_git_part(offer),)),
        *(_notification_part(number) for number in range(list_length(data.get("notifications")))),
    ]


def _workload_fields(
    data: Mapping[str, Any], offer: FormChoices
) -> tuple[tuple[FormField, ...], tuple[FormField, ...]]:
    """Return the fields that most workloads need, and the other fields."""
    identity = (
        FormField(("name",), "Name"),
        FormField(
            ("project",),
            "Project",
            field_kinds.CHOICE,
            choices=_name_choices(offer.projects, "Select a project"),
        ),
    )
    has_image = "image" in data or offer.runs_images
    image = FormField(
        ("image",),
        "Container image",
        hint=IMAGE_HINT,
        suggestions="images",
        wide=True,
    )
    pulls = FormField(("image_pull_policy",), "Image pulls", field_kinds.CHOICE, choices=PULL_POLICIES)
    fields = (
        *(() if offer.for_template else identity),
        FormField(("kind",), "Kind", field_kinds.CHOICE, choices=KINDS),
        _command_field(data),
        *((image,) if has_image else ()),
    )
    env = FormField(("env",), "Environment", field_kinds.PAIRS, "NAME=VALUE, one per line", wide=True)
    directory = FormField(("working_dir",), "Working directory")
    labels = FormField(("labels",), "Labels", field_kinds.PAIRS, "NAME=VALUE, one per line", wide=True)
    return fields, (env, labels, directory, *((pulls,) if has_image else ()))


def _command_field(data: Mapping[str, Any]) -> FormField:
    if data.get("kind") != "interactive":
        return FormField(("command",), "Command", field_kinds.COMMAND, wide=True)
    hint = PORTS_HINT if data.get("ports") else SESSION_HINT
    return FormField(("command",), "Command", field_kinds.COMMAND, hint, wide=True, guide="ports")


def _role_part(
    data: Mapping[str, Any], at: Location, offer: FormChoices, *, alone: bool, last: bool
) -> FormPart:
    name = value_at(data, (*at, "name"))
    is_service, is_elastic = data.get("kind") == "service", data.get("kind") == "elastic"
    role_name = FormField((*at, "name"), "Role name", unfolds=False)
    fields = (
        *(() if alone else (role_name,)),
        _replicas_field(at, is_service=is_service),
        # Offer a maximum only for elastic training. Other kinds show the field if the document has one.
        *((_max_replicas_field(at),) if is_elastic or value_at(data, (*at, "max")) is not None else ()),
        FormField((*at, "gpu"), "GPUs per pod", field_kinds.AMOUNT, "Or a fraction, such as 0.5"),
        FormField((*at, "cpu"), "CPU cores", field_kinds.AMOUNT, "Per pod, such as 2 or 800m"),
        FormField((*at, "memory_mib"), "Memory", field_kinds.MEMORY, "Per pod, such as 4 GiB"),
    )
    more = (
        *((role_name,) if alone else ()),
        FormField(
            (*at, "gpu_models"),
            "GPU models",
            field_kinds.NAMES,
            "Leave empty for any model" if offer.models else "",
            choices=_name_choices(offer.models),
            many=True,
            wide=True,
            empty="" if offer.models else NO_MODELS,
        ),
        FormField(
            (*at, "gpu_memory_mib"),
            "GPU memory",
            field_kinds.MEMORY,
            "Instead of GPUs, such as 8 GiB",
        ),
        FormField(
            (*at, "gpu_devices"),
            "Shared devices",
            field_kinds.AMOUNT,
            "Split over this number",
        ),
        FormField((*at, "spread_per_node"), "Max pods per node", field_kinds.AMOUNT),
        *_topology_fields(at, offer),
        FormField(
            (*at, "command"),
            "Role command",
            field_kinds.COMMAND,
            "Overrides the workload's command",
            wide=True,
        ),
        FormField(
            (*at, "env"),
            "Role environment",
            field_kinds.PAIRS,
            "Added to the workload's environment",
            wide=True,
        ),
        FormField(
            (*at, "secrets"),
            "Role secrets",
            field_kinds.SECRETS,
            "Added to the workload's secrets",
            wide=True,
            secrets=offer.secrets,
        ),
    )
    named = f"Role {name}" if isinstance(name, str) and name else "Pods"
    title = "Resources" if alone else named
    add = join_path(at[:-1]) if last else ""
    return FormPart(title, fields, more, MORE_OF_ROLE, None if alone else at, add)


def _topology_fields(at: Location, offer: FormChoices) -> Iterator[FormField]:
    choices, empty = _name_choices(offer.levels, "Not set"), "" if offer.levels else NO_LEVELS
    for key in ("required", "preferred"):
        label, place = f"{key.capitalize()} topology", (*at, "topology", key)
        yield FormField(place, label, field_kinds.CHOICE, choices=choices, empty=empty)


def _replicas_field(at: Location, *, is_service: bool) -> FormField:
    label, hint = (
        ("Initial engines", "Engines that always run")
        if is_service
        else ("Replicas", "Start together or not at all")
    )
    return FormField((*at, MIN_REPLICAS), label, field_kinds.AMOUNT, hint, default="1")


def _max_replicas_field(at: Location) -> FormField:
    hint = "Used while capacity is free"
    return FormField((*at, MAX_REPLICAS), "Max replicas", field_kinds.AMOUNT, hint)


def _git_part(offer: FormChoices) -> FormPart:
    at: Location = ("code", "git")
    fields = (
        FormField((*at, "url"), "Repository URL", hint=GIT_HINT, wide=True),
        FormField((*at, "ref"), "Branch, tag or commit", hint="Leave empty for the default branch"),
        FormField((*at, "directory"), "Directory", hint="Use only this directory of the repository"),
    )
    more = (
        FormField((*at, "secret"), "Git secret", field_kinds.GIT_SECRET, GIT_ACCESS_HINT, wide=True,
                  secrets=offer.git_secrets),
        FormField((*at, "host_key"), "SSH host key", hint=HOST_KEY_HINT, wide=True),
    )  # fmt: skip
    return FormPart(GIT_TITLE, fields, more)


def _has_uploaded_code(data: Mapping[str, Any]) -> bool:
    return value_at(data, ("code", "tree")) is not None


def _service_fields(data: Mapping[str, Any]) -> tuple[FormField, ...]:
    return (
        FormField(("service", "model_name"), "Model", hint="Name in requests"),
        FormField(("service", "engine"), "Engine", field_kinds.CHOICE, choices=ENGINES),
        FormField(("service", "router", "kind"), "Router", field_kinds.CHOICE, choices=ROUTERS),
        FormField(
            ("service", "router", "url"),
            "Router address",
            hint="For example http://router:30000",
            is_hidden=value_at(data, ("service", "router")) is None,
        ),
        FormField(
            ("service", "autoscaler", "min_engines"), "Min engines", field_kinds.AMOUNT, AUTOSCALER_HINT
        ),
        FormField(("service", "autoscaler", "max_engines"), "Max engines", field_kinds.AMOUNT),
    )


def _scheduling_fields(data: Mapping[str, Any], offer: FormChoices) -> tuple[FormField, ...]:
    pools = FormField(
        ("pools",),
        "Node pools",
        field_kinds.NAMES,
        "" if data.get("pools") else "Leave empty for any pool",
        choices=_name_choices(offer.pools),
        many=True,
        wide=True,
    )
    kind = str(data.get("kind"))
    return (
        *((pools,) if len(offer.pools) > 1 or data.get("pools") else ()),
        FormField(("priority",), "Priority", field_kinds.NUMBER_CHOICE, PRIORITY_HINT,
              choices=priority_choices(kind), synonyms=priority_synonyms(kind)),
        FormField(("max_runtime",), "Max runtime", field_kinds.SECONDS_KIND, MAX_RUNTIME_HINT),
    )  # fmt: skip


def _advanced_fields(offer: FormChoices) -> tuple[FormField, ...]:
    return (
        FormField(("preemptible",), "Preemptible", field_kinds.FLAG, PREEMPTIBLE_HINT, choices=FLAGS),
        FormField(("restart_policy", "kind"), "Restart policy", field_kinds.CHOICE, choices=RESTARTS),
        FormField(("restart_policy", "max_restarts"), "Max restarts", field_kinds.AMOUNT),
        FormField(("idle_timeout",), "Idle timeout", field_kinds.SECONDS_KIND, IDLE_HINT),
        FormField(("burst_after",), "Burst after", field_kinds.SECONDS_KIND,
              "Pending time before the last pool is used"),
        *_topology_fields((), offer),
        FormField(("retry",), "Retry rules", field_kinds.RETRY, RETRY_HINT, wide=True),
        FormField(("grace_period_seconds",), "Grace period", field_kinds.SECONDS_KIND, GRACE_HINT),
        FormField(("preemption", "signal"), "Preemption signal", hint=NOTICE_HINT),
        FormField(("preemption", "lead"), "Signal lead", field_kinds.SECONDS_KIND, LEAD_HINT),
    )  # fmt: skip


def _file_fields(offer: FormChoices) -> tuple[FormField, ...]:
    return (
        FormField(("secrets",), "Secrets", field_kinds.SECRETS, SECRETS_HINT, wide=True,
                  secrets=offer.secrets),
        FormField(("outputs",), "Outputs", field_kinds.PATHS, OUTPUTS_HINT, wide=True),
        FormField(("keep_failed_pod",), "Keep failed pods", field_kinds.SECONDS_KIND, KEEP_HINT),
    )  # fmt: skip


def _excludes_arrays(data: Mapping[str, Any]) -> bool:
    return data.get("kind") in ("service", "interactive") and "array" not in data


def _array_part(data: Mapping[str, Any]) -> FormPart:
    values, matrix = (value_at(data, ("array", key)) is not None for key in ("values", "matrix"))
    hint, size = (SELECTION_HINT if values or matrix else ARRAY_HINT), count_parameter_sets(data)
    fields = (
        FormField(("array", "tasks"), "Tasks", TASKS, hint, default=f"All {size:,}" if size else ""),
        FormField(("array", "max_running"), "Max running tasks", field_kinds.AMOUNT),
        FormField(("array", "matrix"), "Parameter matrix", MATRIX, MATRIX_HINT, wide=True,
                  is_hidden=values and not matrix),
        FormField(("array", "values"), "Task values", VALUES, VALUES_HINT, wide=True,
                  is_hidden=matrix and not values),
        FormField(("array", "stop", "metric"), "Stop by metric", hint=STOP_HINT),
        FormField(("array", "stop", "goal"), "Best value", field_kinds.CHOICE, choices=GOALS),
        FormField(("array", "stop", "after_steps"), "Stop after step", field_kinds.AMOUNT),
        FormField(("array", "stop", "min_tasks"), "Tasks to compare with", field_kinds.AMOUNT, default="3"),
    )  # fmt: skip
    return FormPart("Array", fields, at=("array",), summary="Several tasks from one document")


def _notification_part(number: int) -> FormPart:
    at: Location = ("notifications", number)
    return FormPart(
        f"Notification {number + 1}",
        (
            FormField((*at, "to"), "To", hint="An email address, https://… or slack:https://…", wide=True),
            FormField((*at, "on"), "Events", field_kinds.NAMES, choices=NOTIFICATION_EVENTS, many=True,
                      wide=True, initial=("completed", "failed")),
        ),
        at=at,
    )  # fmt: skip


def _name_choices(names: Sequence[str], nothing: str = "") -> Choices:
    return (*((("", nothing),) if nothing else ()), *((name, name) for name in names))
