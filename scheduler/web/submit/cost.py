"""Cost of a predicted workload at current prices, and the remaining budget."""

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class PredictedCost:
    """Price of a predicted workload, the GPU time that the price covers, and the remaining budgets.

    A text that does not apply is empty. `budgets` contains a text for each budget, with a flag that is True
    if the budget is exceeded.
    """

    price: str = ""
    usage: str = ""
    reason: str = ""  # reason why there is no total price
    budgets: Sequence[tuple[str, bool]] = ()

    @property
    def exceeds_budget(self) -> bool:
        return any(is_exceeded for _, is_exceeded in self.budgets)

    @property
    def assumes_max_runtime(self) -> bool:
        return bool(self.usage)


def describe_cost(
    actor: Actor,
    prediction: Prediction,
    now: datetime,
    *,
    gpus: float,
    max_runtime: int | None,
    tasks: int = 1,
) -> PredictedCost:
    """Return the workload's predicted cost, and the remaining amounts of the budgets that apply to it.

    `gpus` is the maximum number of GPUs of one task, and `max_runtime` is in seconds.
    """
    if not gpus:
        return PredictedCost()
    price, usage, reason = _describe_price(prediction, gpus, max_runtime, tasks)
    return PredictedCost(price, usage, reason, _describe_budgets(actor, prediction, now))


def _describe_price(
    prediction: Prediction, gpus: float, max_runtime: int | None, tasks: int
) -> tuple[str, str, str]:
    """Return the price, the GPU time that the price covers, and the reason why there is no total price.

    All of these texts are empty if no pool has a price.
    """
    names = {each["pool"] for each in prediction.decisions if each["pods"]} or prediction.workload["pools"]
    pools = NodePool.objects.filter(name__in=names).order_by("name")
    prices = {pool.name: current_price(pool) for pool in pools}
    amounts = [float(price) for price in prices.values() if price is not None]
    if not amounts and not (prices and NodePool.objects.exclude(price_per_gpu_hour=None).exists()):
        return "", "", ""
    if without := [name for name, price in prices.items() if price is None]:
        has = "has" if len(without) == 1 else "have"
        return "Unknown", "", f"{'pool' if has == 'has' else 'pools'} {join_words(without)} {has} no price"
    currency, highest = settings.BERTH_CURRENCY, max(amounts)
    if max_runtime is None:
        price = f"Up to {money(highest * gpus)} {currency} per hour" if tasks == 1 else "Unknown"
        return price, "", "no max runtime"
    total, share = gpus * tasks * max_runtime / HOUR, min(prediction.workload["gpus"] / gpus, 1)
    if share in (0, 1):
        price = f"Up to {money(highest * total)} {currency}"
        return price, f"for {format_count(total, 'GPU-hour')}", ""
    price = f"{money(highest * total * share)} to {money(highest * total)} {currency}"
    hours = f"{format_number(total * share)} to {format_count(total, 'GPU-hour')}"
    return price, f"for {hours}", ""


def _describe_budgets(actor: Actor, prediction: Prediction, now: datetime) -> list[tuple[str, bool]]:
    project = prediction.workload["project"]
    concerned = Q(project__name=project) | Q(department__projects__name=project)
    budgets = list(selectors.budgets(actor).filter(concerned).distinct())
    # the project's budget comes first
    statuses = sorted(budget_statuses(budgets, now), key=lambda status: status.budget.project is None)
    left = [(each.budget.owner.name, round(each.budget.gpu_hours - each.used)) for each in statuses]
    note = " left" if any(hours < 0 for _, hours in left) else ""
    return [
        (f"{name} is over its budget by {-hours:,} GPU-hours", True)
        if hours < 0
        else (f"{hours:,} GPU-hours{note} for {name}", False)
        for name, hours in left
    ]
