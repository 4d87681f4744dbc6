"""Choices of the form's selects, and the other values that mean the same in a document."""

from collections.abc import Mapping
from types import MappingProxyType

Choices = tuple[tuple[str, str], ...]

KINDS: Choices = (
    ("", "Training"), ("elastic", "Elastic training"), ("interactive", "Interactive session"),
    ("service", "Inference service"),
)  # fmt: skip
FLAGS: Choices = (("", "From priority"), ("true", "Yes"), ("false", "No"))
RESTARTS: Choices = (("", "Never"), ("on_failure", "On failure"), ("always", "Always"))
GOALS: Choices = (("", "Lowest"), ("max", "Highest"))
ENGINES: Choices = (("", "SGLang"), ("openai", "OpenAI-compatible server"))
ROUTERS: Choices = (("", "None"), ("sglang", "SGLang router"), ("static", "File of addresses"))
PULL_POLICIES: Choices = (("", "If not present"), ("always", "Always"), ("never", "Never"))
NOTIFICATION_EVENTS: Choices = (
    ("started", "Started"), ("completed", "Completed"), ("failed", "Failed"), ("preempted", "Evicted"),
    ("cancelled", "Cancelled"), ("unschedulable", "Unschedulable (can never start)"),
)  # fmt: skip
NO_SYNONYMS: Mapping[str, str] = MappingProxyType({})
# Explicit defaults, which the form shows like an absent value.
DEFAULTS: Mapping[Choices, Mapping[str, str]] = {
    KINDS: {"training": ""},
    RESTARTS: {"never": ""},
    GOALS: {"min": ""},
    ENGINES: {"sglang": ""},
    PULL_POLICIES: {"if_not_present": ""},
}


def synonyms_of(choices: Choices) -> Mapping[str, str]:
    """Return the choice for each other value that means the same in a document."""
    return DEFAULTS.get(choices, NO_SYNONYMS)
