"""Predicted outcome of a submission or an edit, prepared for display."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from django.utils import timezone

from berth.core.spec import WorkloadSpec
from berth.core.wording.words import format_count, join_words
from berth.server.web.numbers import thousandths
from berth.server.web.pages import Request
from projects.actor import Actor
from projects.services.workloads.prediction import Prediction, TasksPrediction
from scheduler.engine.plan import Reason
from scheduler.models import QueueStatus
from scheduler.reports.evictions.predicted import (
    PredictedEviction,
    PredictedEvictions,
    build_prediction_table,
)
from scheduler.reports.explanations.awaited_ends import AwaitedEnd
from scheduler.web.accepted_prediction import AcceptedPrediction, sign_prediction
from scheduler.web.submit.cost import PredictedCost, describe_cost
from scheduler.web.submit.excessive_field import ExcessiveField
from scheduler.web.submit.form.priorities import priority_label
from scheduler.web.submit.limit_wait import LimitWait, predict_limit_wait
from scheduler.web.submit.verdict import Verdict, build_verdict
from scheduler.web.workloads.details import (
    LIMIT_SOURCES,
    describe_pod_limits,
    hold_owner_urls,
    link_awaited_ends,
)
from scheduler.web.workloads.pending.change_link import LinkedText, link_names, workload_urls

EXCEEDS_SHARE = str(Reason.WOULD_EXCEED_FAIR_SHARE)
NAMED_NODES_MAX, VICTIMS_MAX = 3, 20


@dataclass(frozen=True, slots=True)
class PredictedPlacement:
    """Pods that would be placed in one pool, with a summary such as "2 pods on node-0, pool train"."""

    summary: str
    pods: Sequence[Mapping[str, Any]]


def count_max_gpus(spec: WorkloadSpec) -> float:
    """Return an elastic workload's GPUs at its maximum number of replicas, or 0 for any other workload."""
    if spec.kind != "elastic":
        return 0
    return sum(role.maximum * (role.gpu or 0) for role in spec.all_roles)


class PredictedOutcome:
    """Base class for pages that show a prediction for a workload.

    `array` contains the prediction for the tasks of an array.
    """

    prediction: Prediction | None
    array: TasksPrediction | None = None
    gpus_max: float = 0  # GPUs at the maximum number of replicas, or 0 if the workload is not elastic
    condition = "with this request"  # condition for the predicted fair shares, as a phrase
    cost: PredictedCost = PredictedCost()
    start_after: Sequence[
        tuple[str, str]
    ] = ()  # clause about the workloads that have to end first, with links
    victim_urls: Mapping[str, str] = MappingProxyType({})  # URLs of the evicted workloads, by handle
    named_urls: Mapping[str, str] = MappingProxyType({})  # URLs of the workloads named in reasons, by handle
    is_service = False
    limit_wait: LimitWait | None = None  # when the project is expected to be below its limit, or None
    accepted: str = ""  # signed prediction, which is sent back with the document
    excessive: ExcessiveField | None = None  # form field that makes the workload unschedulable

    @property
    def verdict(self) -> Verdict | None:
        return build_verdict(self.prediction, self.array, self.named_urls) if self.prediction else None

    @property
    def priority_label(self) -> str:
        """Predicted priority as in the form, such as "125 (high)"."""
        kind = "service" if self.is_service else "training"
        return priority_label(self.prediction.workload["priority"], kind) if self.prediction else ""

    @property
    def start_pool(self) -> str:
        """Pool for which the start is predicted, or "" if the workload allows only one pool."""
        blockers = self.prediction.blockers if self.prediction else []
        return str(blockers[0]["numbers"].get("pool", "")) if blockers else ""

    @property
    def never_starts(self) -> bool:
        """Whether the workload can never start as specified. If so, the button and the message say this."""
        return self.prediction is not None and self.prediction.outcome == "unschedulable"

    @property
    def offers_smallest_change(self) -> bool:
        """Whether the page offers the smallest change that would start the workload."""
        seen = self.prediction
        if seen is None or self.array is not None:
            return False
        is_queued = seen.outcome == "would_stay_pending" and not seen.decisions
        return is_queued or seen.outcome == "unschedulable"

    @property
    def limits(self) -> list[str]:
        """Resource limits of each role's pods, such as `worker: 1 CPU (...)`.

        If the limits differ between pools, they are listed by pool. Limits equal to the requests are omitted.
        """
        by_role: dict[str, dict[str, str]] = {}
        for each in self.prediction.limits if self.prediction else []:
            lines = [line for line in describe_pod_limits(each, None) if line[1] != LIMIT_SOURCES["request"]]
            text = ", ".join(f"{text} ({note})" for text, note in lines)
            by_role.setdefault(each["role"], {})[each["pool"]] = text
        result = []
        for role, by_pool in by_role.items():
            if len(set(by_pool.values())) == 1:
                result.append((role, next(iter(by_pool.values()))))
            else:
                result += [(f"{role} in {pool}", text) for pool, text in by_pool.items()]
        return [f"{where}: {text}" for where, text in result if text]

    @property
    def fair_share_increase_sentence(self) -> str:
        """Sentence that says how much this request raises the project's fair share, or "" if it does not."""
        if self.prediction is None or len(self.prediction.workload["pools"]) != 1:
            return ""
        project, [pool] = self.prediction.workload["project"], self.prediction.workload["pools"]
        numbers = next(
            (
                each.get("numbers") or {}
                for each in self.prediction.blockers
                if each["reason"] == EXCEEDS_SHARE
            ),
            {},
        )
        if numbers.get("resource") != "gpu" or numbers.get("queue") != project:
            return ""
        status = QueueStatus.objects.filter(project__name=project, pool__name=pool).first()
        share = int(numbers["bound"])
        if status is None or status.share[0] >= share:
            return ""
        now, grown = thousandths(status.share[0]), thousandths(share)
        return f"The fair share of {project} is {now} now. With this request, it is {grown}."

    @property
    def placements(self) -> list[PredictedPlacement]:
        """Placement of the workload, or of an array's first task, in each pool."""
        decisions = self.prediction.decisions if self.prediction else []
        return [_describe_placement(each) for each in decisions if each["pods"]]

    @property
    def evictions(self) -> list[dict[str, Any]]:
        """Evictions caused by the workload, or by all of the array's tasks."""
        if self.array is not None:
            return self.array.evictions
        return self.prediction.evictions if self.prediction else []

    @property
    def eviction_table(self) -> PredictedEvictions:
        return build_prediction_table(self.evictions, self.condition)

    @property
    def effects_with_links(self) -> LinkedText:
        """Sentence about the workloads that would be evicted, with their links."""
        return link_names(self.verdict.effects, self.victim_urls) if self.verdict else []

    @property
    def would_evict(self) -> bool:
        """Whether starting the workload would evict other workloads.

        If so, the label of the submit button says so.
        """
        return self.verdict is not None and " evict " in self.verdict.title

    @property
    def evictions_with_links(self) -> list[tuple[PredictedEviction, str]]:
        """Predicted evictions, each with its workload's URL or ""."""
        return [(row, self.victim_urls.get(row.victim, "")) for row in self.eviction_table.rows]

    def sign(self, request: Request, document: Mapping[str, Any], *, is_edit: bool = False) -> None:
        """Sign the prediction, so that it can be shown after the submission."""
        if (shown := self.summarize(is_edit=is_edit)) is not None:
            self.accepted = sign_prediction(request, shown, document)

    def summarize(self, *, is_edit: bool = False) -> AcceptedPrediction | None:
        """Return the parts of the prediction to show once the user has accepted it.

        Return None if there is no prediction.
        """
        verdict = self.verdict
        if self.prediction is None or verdict is None:
            return None
        start = self.prediction.expected_start
        return AcceptedPrediction(
            title=verdict.title,
            reason=verdict.reason,
            nodes=[each.summary for each in self.placements],
            victims=[row.victim for row in self.eviction_table.rows][:VICTIMS_MAX],
            start=start.isoformat() if start else "",
            at=timezone.now().isoformat(),
            is_edit=is_edit,
        )

    def add_cost(self, actor: Actor, spec: WorkloadSpec) -> None:
        """Add the number of GPUs and the cost of the predicted workload or array."""
        assert self.prediction is not None
        self.is_service = spec.kind == "service"
        self.gpus_max = 0 if self.array else count_max_gpus(spec)
        gpus = max(count_max_gpus(spec), self.prediction.workload["gpus"])
        ends = [AwaitedEnd(**each) for each in self.prediction.expected_start_after]
        self.start_after = link_awaited_ends(actor, ends)
        blockers = [*self.prediction.blockers, *(self.array.blockers if self.array else ())]
        self.named_urls = hold_owner_urls(actor, blockers)
        self.victim_urls = workload_urls(actor, [each["victim"] for each in self.evictions])
        self.limit_wait = predict_limit_wait(actor, self.prediction, timezone.now())
        self.cost = describe_cost(
            actor,
            self.prediction,
            timezone.now(),
            gpus=gpus,
            max_runtime=spec.max_runtime,
            tasks=self.array.tasks if self.array else 1,
        )

    @property
    def total_gpus(self) -> float:
        return self.array.tasks * self.array.first_task.workload["gpus"] if self.array else 0


def _describe_placement(decision: Mapping[str, Any]) -> PredictedPlacement:
    pods = decision["pods"]
    nodes = sorted({pod["node"] for pod in pods})
    named = join_words(nodes) if len(nodes) <= NAMED_NODES_MAX else format_count(len(nodes), "node")
    return PredictedPlacement(f"{format_count(len(pods), 'pod')} on {named}, pool {decision['pool']}", pods)
