"""Tests for the summary of predicted evictions."""

from typing import Any

from django.template.loader import render_to_string

from scheduler.reports.evictions.predicted import build_prediction_table


def document(victim: str, kind: str, gpus: float, work: float, *alternatives: str) -> dict[str, Any]:
    lost_text = ["10.0 GPU-h of work lost."] if work else []
    considered = [f"Alternative considered: {text}" for text in alternatives]
    return {
        "victim": victim, "workload": victim.partition("/")[2], "preemptor": "ads/nightly", "kind": kind,
        "gpus": gpus, "lost_gpu_seconds": work,
        "rule": "ads stays within its quota",
        "explanation": ["Rule: ads stays within its quota.", "ads: 2 GPUs before", *lost_text, *considered],
    }  # fmt: skip


def test_summary_counts_workloads_gpus_and_lost_work_by_action() -> None:
    table = build_prediction_table(
        [
            document("vision/a", "reclaim", 8, 36_000),
            document("vision/b", "preempt", 4, 36_000),
            document("speech/c", "consolidate", 2, 0),
            document("speech/d", "shrink", 1, 0),
        ]
    )
    assert table.summary == (
        "Evicts 2 workloads (12 GPUs, 20.0 GPU-h of work lost), scales down speech/d (1 GPU), "
        "moves speech/c (2 GPUs)"
    )
    assert not table.has_several_preemptors


def test_eviction_summary_describes_one_hidden_workload_but_only_counts_several() -> None:
    hidden = document("a 4-GPU workload in project speech", "reclaim", 4, 0)
    assert build_prediction_table([hidden]).summary == f"Evicts {hidden['victim']} (4 GPUs)"
    assert build_prediction_table([hidden, hidden]).summary == "Evicts 2 workloads (8 GPUs)"
    visible = document("speech/c", "reclaim", 4, 0)
    assert build_prediction_table([visible, visible]).summary == "Evicts speech/c (8 GPUs)"


def test_evictions_of_cpu_only_workloads_state_no_gpu_amounts() -> None:
    on_cpus = document("vision/a", "preempt", 0, 0)
    table = build_prediction_table([on_cpus])
    assert table.summary == "Evicts vision/a"
    answer = {"eviction_table": table, "evictions_with_links": [(table.rows[0], "/workloads/1")]}
    text = render_to_string("scheduler/submit/predicted_evictions.html", {"answer": answer})
    assert '<a href="/workloads/1">vision/a</a> would be <strong>preempted</strong></p>' in text


def test_preposition_before_the_preemptor_matches_the_action() -> None:
    rows = [document("vision/a", "preempt", 1, 0), document("speech/c", "consolidate", 2, 0)]
    rows[1]["preemptor"] = "ads/daily"
    table = build_prediction_table(rows)
    answer = {"eviction_table": table, "evictions_with_links": [(row, "") for row in table.rows]}
    text = render_to_string("scheduler/submit/predicted_evictions.html", {"answer": answer})
    assert "<strong>preempted</strong> <span>by ads/nightly</span>" in text
    assert "<strong>moved</strong> <span>for ads/daily</span>" in text


def test_prediction_lists_alternatives_once_and_queues_for_each_eviction() -> None:
    table = build_prediction_table(
        [
            document("vision/a", "reclaim", 8, 36_000, "evicting b alone"),
            document("vision/b", "reclaim", 8, 36_000, "evicting b alone", "evicting c"),
        ]
    )
    assert table.alternatives == ["evicting b alone", "evicting c"]
    assert [row.queues for row in table.rows] == [["ads: 2 GPUs before"]] * 2


def test_predicted_eviction_rule_uses_the_present_tense_and_states_its_condition() -> None:
    bounds = "its quota of 8 GPUs and its fair share of 9.25 GPUs"
    above = f"vision had 12 GPUs allocated or reserved, more than {bounds}"
    within = "ads stays within its quota of 4 GPUs, and vision was over its own"
    documents = [document("vision/a", "reclaim", 8, 0) | {"rule": rule} for rule in (above, within)]
    for condition, stated in (("after this change", ""), ("with this request", "with this request")):
        context = {"evictions": documents, "condition": stated}
        text = render_to_string("scheduler/evictions/predicted.html", context)
        assert f"{above.replace(' had ', ' has ')} {condition}.<" in text
        assert "and vision is over its own.<" in text
