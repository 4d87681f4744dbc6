"""States of workloads, nodes and other objects as coloured labels."""

from django.utils.html import format_html
from django.utils.safestring import SafeString

from berth.core.wording.words import token_to_words
from projects.models import Phase, Workload
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE

TONES = {
    "pending": "warn",
    "active": "info",
    "reserved": "info",
    "starting": "info",
    "running": "good",
    "delivered": "good",
    "stopping": "warn",
    "suspended": "",
    "completed": "accent",
    "failed": "bad",
    "cancelled": "",
    "succeeded": "accent",
    "stopped": "",
    "lost": "bad",
    "unschedulable": "bad",
    "requested": "info",
    "booting": "info",
    "ready": "good",
    "cordoned": "warn",
    "draining": "warn",
    "ended": "",
    "reclaim": "warn",
    "preempt": "warn",
    "shrink": "info",
    "consolidate": "info",
    "stale_gang": "bad",
    "drain": "info",
    "cluster": "warn",
    "start": "good",
    "grow": "info",
    "reserve": "info",
    # Outcomes of schedule runs.
    "submitted": "good",
    "queued": "info",
    "skipped": "warn",
    "rejected": "bad",
    # States of inference engines and scale requests.
    "PENDING": "warn",
    "CREATING": "info",
    "CONNECTING": "info",
    "HEALTH_CHECKING": "info",
    "WEIGHT_SYNCING": "info",
    "READY": "good",
    "ACTIVE": "good",
    "DRAINING": "warn",
    "REMOVING": "warn",
    "ROLLING_BACK": "warn",
    "PARTIAL": "warn",
    "COMPLETED": "accent",
    "FAILED": "bad",
}


def chip(state: str, text: str = "") -> SafeString:
    """Render a state as a coloured label."""
    return format_html('<span class="chip {}">{}</span>', TONES.get(state, ""), text or token_to_words(state))


def workload_chip(workload: Workload) -> SafeString:
    """Render a workload's phase as a coloured label, or "Unschedulable" if the workload can never start."""
    if workload.phase == Phase.PENDING and workload.reason == UNSCHEDULABLE:
        return chip("unschedulable")
    return chip(workload.phase)


def tone(kind: str) -> str:
    return TONES.get(kind, "")
