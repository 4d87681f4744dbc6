"""Cost of a predicted workload at current prices, and the remaining budget."""

from collections.abc import Iterator
from datetime import datetime

from django.conf import settings
from django.db.models import Q

from berth.core.wording.words import format_count, format_number, join_words
from berth.server.web.numbers import money
from pools.costs import current_price
from pools.models import NodePool
from projects import selectors
from projects.actor import Actor
from projects.services.workloads.prediction import Prediction
from scheduler.reports.usage.budgets import budget_statuses

HOUR = 3600


def describe_cost(
    actor: Actor,
    prediction: Prediction,
    now: datetime,
    *,
    gpus: float,
    max_runtime: int | None,
    tasks: int = 1,
) -> str:
    """Return sentences about the cost and the budgets, or "" if there are no prices and budgets.

    The cost of an elastic workload is a range, from its requested to its highest number of GPUs. `gpus` is
    the highest number of GPUs of one task, and `max_runtime` is in seconds.
    """
    if not gpus:
        return ""
    sentences = [
        *_describe_price(prediction, gpus, max_runtime, tasks),
        *_describe_budgets(actor, prediction, now),
    ]
    return " ".join(sentences)


def _describe_price(
    prediction: Prediction, gpus: float, max_runtime: int | None, tasks: int
) -> Iterator[str]:
    prices = [current_price(pool) for pool in NodePool.objects.filter(name__in=prediction.workload["pools"])]
    amounts = [float(price) for price in prices if price is not None]
    if not amounts or len(amounts) < len(prices):
        return
    currency, highest = settings.BERTH_CURRENCY, max(amounts)
    if max_runtime is None:
        if tasks == 1:
            yield f"Costs up to {money(highest * gpus)} {currency} per hour."
        return
    total, share = gpus * tasks * max_runtime / HOUR, min(prediction.workload["gpus"] / gpus, 1)
    if share in (0, 1):
        yield f"Costs up to {money(highest * total)} {currency} for {format_count(total, 'GPU-hour')}."
        return
    yield (
        f"Costs {money(highest * total * share)} to {money(highest * total)} {currency} for "
        f"{format_number(total * share)} to {format_count(total, 'GPU-hour')}, "
        "if it runs for the entire max runtime."
    )


def _describe_budgets(actor: Actor, prediction: Prediction, now: datetime) -> Iterator[str]:
    project = prediction.workload["project"]
    concerned = Q(project__name=project) | Q(department__projects__name=project)
    budgets = list(selectors.budgets(actor).filter(concerned).distinct())
    # the project's budget comes first
    statuses = sorted(budget_statuses(budgets, now), key=lambda status: status.budget.project is None)
    left = [
        f"{max(0, round(status.budget.gpu_hours - status.used)):,} GPU-hours for {status.budget.owner.name}"
        for status in statuses
    ]
    if left:
        yield f"Budget left this month: {join_words(left)}."
