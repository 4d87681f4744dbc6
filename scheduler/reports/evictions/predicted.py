"""Tables of predicted evictions, for previews of submissions and quota changes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berth.core.wording.words import format_count, format_gpu_time
from scheduler.reports.evictions.rendering import ALTERNATIVE_PREFIX, RULE_PREFIX, capitalize_rule

MOVED, SCALED_DOWN = "consolidate", "shrink"
# Matches the start of a recorded eviction rule for a queue that was above its fair share.
ABOVE_SHARE = re.compile(
    r"^(\S+) had (.+, more than its (?:quota of [\d.,]+ GPUs? and its )?fair share of [\d.,]+ GPUs?)"
)


@dataclass(frozen=True, slots=True)
class PredictedEviction:
    victim: str
    preemptor: str
    kind: str
    gpus: float
    lost_gpu_seconds: float
    rule: str
    queues: list[str]  # lines of text, one per affected queue


@dataclass(frozen=True, slots=True)
class PredictedEvictions:
    """Table of predicted evictions with a summary. `alternatives` lists each rejected alternative once."""

    summary: str
    rows: list[PredictedEviction]
    alternatives: list[str]
    has_several_preemptors: bool


def build_prediction_table(
    documents: Sequence[Mapping[str, Any]], condition: str = "after this change"
) -> PredictedEvictions:
    """Return the table of predicted evictions.

    `documents` contains the evictions as JSON objects. `condition` says when the predicted fair shares apply,
    such as "after this change".
    """
    rows = [_predicted_eviction(document, condition) for document in documents]
    alternatives = (
        line.removeprefix(ALTERNATIVE_PREFIX)
        for document in documents
        for line in document["explanation"]
        if line.startswith(ALTERNATIVE_PREFIX)
    )
    return PredictedEvictions(
        _summary(documents), rows, list(dict.fromkeys(alternatives)), len({row.preemptor for row in rows}) > 1
    )


def rule_in_present_tense(rule: str, condition: str) -> str:
    """Reword an eviction rule in the present tense.

    `condition`, for example "after this change", is inserted after the fair share that the rule mentions.
    """
    return ABOVE_SHARE.sub(rf"\1 has \2 {condition}", rule).replace(" was over its own", " is over its own")


def _predicted_eviction(document: Mapping[str, Any], condition: str) -> PredictedEviction:
    work_seconds = document["lost_gpu_seconds"]
    left_out = (ALTERNATIVE_PREFIX, RULE_PREFIX, f"{format_gpu_time(work_seconds)} of work")
    queues = [line for line in document["explanation"] if not line.startswith(left_out)]
    parties = {*document["victim"].split("/"), *document["preemptor"].split("/")}
    return PredictedEviction(
        victim=document["victim"],
        preemptor=document["preemptor"],
        kind=document["kind"],
        gpus=document["gpus"],
        lost_gpu_seconds=work_seconds,
        rule=capitalize_rule(
            rule_in_present_tense(document["rule"], condition),
            parties | {line.partition(":")[0] for line in queues},
        ),
        queues=queues,
    )


def count_victims(documents: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of workloads in predicted evictions.

    Every eviction of a hidden workload counts separately.
    """
    hidden, names = 0, set()
    for document in documents:
        if document["workload"]:
            names.add(document["victim"])
        else:
            hidden += 1
    return len(names) + hidden


def _summary(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return text such as "Evicts 2 workloads (2 GPUs, 3.0 GPU-h of work lost), moves ads/nightly
    (1 GPU)".
    """
    by_kind: dict[str, list[Mapping[str, Any]]] = {"evicts": [], "scales down": [], "moves": []}
    for document in documents:
        verb = {MOVED: "moves", SCALED_DOWN: "scales down"}.get(document["kind"], "evicts")
        by_kind[verb].append(document)
    parts = []
    for verb, group in by_kind.items():
        if not group:
            continue
        count = count_victims(group)
        subject = group[0]["victim"] if count == 1 else format_count(count, "workload")
        gpus = sum(document["gpus"] for document in group)
        work_seconds = sum(document["lost_gpu_seconds"] for document in group)
        notes = [format_count(gpus, "GPU")] if gpus else []
        notes += [f"{format_gpu_time(work_seconds)} of work lost"] if work_seconds else []
        parts.append(f"{verb} {subject} ({', '.join(notes)})" if notes else f"{verb} {subject}")
    text = ", ".join(parts)
    return text[:1].upper() + text[1:]
