"""Pending reasons as pages show, count and filter them."""

from datetime import timedelta

from django.db.models import Case, DateTimeField, Exists, F, OuterRef, Q, TextField, Value, When
from django.db.models.fields.json import KT, KeyTextTransform
from django.db.models.functions import Cast
from django.db.models.lookups import Exact

from projects.known_words import RESERVED
from projects.models import Phase, Project

BACKOFF, WOULD_EXCEED_FAIR_SHARE = "Backoff", "WouldExceedFairShare"
# A workload expected to start this long or longer after its restart delay also waits for something else.
DELAY_MARGIN = timedelta(minutes=1)

# Queue status of the workload's project and pool, if the fair share has less left than the workload requests.
_EXCEEDED_SHARE = (
    Project.objects.filter(
        pk=OuterRef("project"),
        queue_statuses__pool__name=KeyTextTransform("pool", OuterRef("explanation")),
    )
    .annotate(held=F("queue_statuses__allocated__0") + F("queue_statuses__reserved__0"))
    .filter(queue_statuses__share__0__lt=F("held") + OuterRef("gpu_milli_min"))
)
# Matches workloads that wait for fair share after their restart delay.
_WAITS_AFTER_DELAY = Q(
    phase=Phase.PENDING,
    reason=BACKOFF,
    backoff_until__lte=Cast(KT("explanation__expected_start"), DateTimeField()) - DELAY_MARGIN,
) & Q(Exists(_EXCEEDED_SHARE))
# The reason shown on pages. Reserved workloads have a reason of their own.
# A wait for fair share replaces a restart delay that ends earlier.
SHOWN_REASON = Case(
    When(phase=Phase.RESERVED, then=Value(RESERVED)),
    When(_WAITS_AFTER_DELAY, then=Value(WOULD_EXCEED_FAIR_SHARE)),
    default=F("reason"),
    output_field=TextField(),
)


def reason_condition(reason: str) -> Q:
    """Return a condition for a reason that pages show."""
    if reason == RESERVED:
        return Q(phase=Phase.RESERVED)
    if reason in (BACKOFF, WOULD_EXCEED_FAIR_SHARE):
        return Q(reason__in=(BACKOFF, WOULD_EXCEED_FAIR_SHARE)) & Q(Exact(SHOWN_REASON, Value(reason)))
    return Q(reason=reason) & ~Q(phase=Phase.RESERVED)
