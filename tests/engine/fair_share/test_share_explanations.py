"""Tests that the explanation of a fair share matches its calculation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.decide import decide
from scheduler.engine.fair_share.explain import divide_requests, divisions
from scheduler.engine.fair_share.trace import Division
from scheduler.reports.fair_share.explain import explain_share
from scheduler.simulator import load
from tests.engine.fair_share.test_fair_share_numbers import CASES, GPU, document, queue
from tests.engine.reference.clusters import clusters
from tests.engine.test_invariants import on_random_clusters

A, B = "a", "b"


def gpu_division(total: int, queues: list[dict[str, Any]], **pool: Any) -> Division:
    story = divisions(load(document(total, queues, **pool)).snapshot, "default")
    return next(division for division in story if division.parent == "all" and division.resource == "gpu")


@pytest.mark.parametrize(("total", "queues", "pool", "expected"), CASES)
def test_amounts_in_the_explanation_add_up_to_the_fair_share(
    total: int, queues: list[dict[str, Any]], pool: dict[str, Any], expected: dict[str, float]
) -> None:
    division = gpu_division(total, queues, **pool)
    for name, share in expected.items():
        total_taken = sum(o.granted for round_ in division.rounds for o in round_.offers if o.queue == name)
        brought = division.queue_input(name)
        assert brought is not None
        assert total_taken == brought.share == share * GPU
        lines = explain_share(division, name)
        amount = "no GPU" if not share else f"{share} GPU{'s' if share != 1 else ''}"
        assert lines[-1] == f"Fair share: {amount}."
        assert lines[0].startswith("Total request (allocated and pending): ")


@pytest.mark.parametrize(("total", "queues", "pool", "expected"), CASES)
def test_no_fair_share_round_distributes_more_than_the_remainder(
    total: int, queues: list[dict[str, Any]], pool: dict[str, Any], expected: dict[str, float]
) -> None:
    for round_ in gpu_division(total, queues, **pool).rounds:
        assert sum(offer.granted for offer in round_.offers) <= round_.left
        if round_.phase != "remainder":
            assert sum(offer.part for offer in round_.offers) == 1
            assert sum(offer.offered for offer in round_.offers) == round_.left


def test_remainder_after_quotas_is_divided_by_weight() -> None:
    division = gpu_division(100, [queue(A, 10, 100, weight=3), queue(B, 10, 100, weight=1)])
    assert explain_share(division, A) == [
        "Total request (allocated and pending): 100 GPUs.",
        "a's quota is 10 GPUs and fully available.",
        "Left to divide by weight: 80 GPUs. a's portion of 75% is 60 GPUs.",
        "Fair share: 70 GPUs.",
    ]


def test_leftover_unit_goes_to_the_largest_remainder() -> None:
    division = gpu_division(11, [queue(A, 2, 10, weight=1), queue(B, 2, 10, weight=4)])
    assert explain_share(division, A)[2:] == [
        "Left to divide by weight: 7 GPUs. a's portion of 20% is 1.4 GPUs, rounded down to 1 GPU.",
        ("Left after rounding: 1 GPU. a's remainder is 0.4 GPUs, less than b's (0.6 GPUs), so a gets none."),
        "Fair share: 3 GPUs.",
    ]
    assert "more than a's (0.4 GPUs), so b gets 1 GPU." in explain_share(division, B)[3]


def test_indivisible_unit_goes_to_the_older_queue() -> None:
    division = gpu_division(11, [queue(A, 2, 6, weight=2, created=2), queue(B, 2, 6, weight=2, created=1)])
    assert explain_share(division, A)[3].endswith("as much as b's, but b is older, so a gets none.")
    assert explain_share(division, B)[3].endswith("as much as a's, but b is older, so b gets 1 GPU.")


def test_unused_share_goes_to_queues_with_demand() -> None:
    division = gpu_division(20, [queue(A, 0, 20), queue(B, 0, 5)])
    assert explain_share(division, A)[2:] == [
        (
            "Left to divide by weight: 20 GPUs. a's portion of 50% is 10 GPUs. "
            "Queues that need less than their portion are served first."
        ),
        "Then left to divide by weight: 15 GPUs. No other queue requests more, so a gets 15 GPUs.",
        "Fair share: 15 GPUs.",
    ]
    assert explain_share(division, B)[2] == (
        "Left to divide by weight: 20 GPUs. b's portion of 50% is 10 GPUs, but b needs only 5 GPUs."
    )


def test_lower_ranks_divide_the_remainder_of_higher_ranks() -> None:
    queues = [queue(A, 0, 5, rank=2, created=2), queue(B, 0, 5, rank=2, created=1), queue("c", 0, 5, rank=1)]
    division = gpu_division(1, queues)
    assert explain_share(division, "c")[1:] == [
        "c has no quota.",
        "Quotas and higher ranks leave nothing to borrow.",
        "Fair share: no GPU.",
    ]
    assert "in rank 2" in explain_share(division, B)[2]


def test_explanation_mentions_oversubscribed_quotas() -> None:
    lines = explain_share(gpu_division(10, [queue(A, 8, 8), queue(B, 8, 8)]), A)
    assert lines[1] == (
        "a's quota is 8 GPUs, but quotas of rank 0 are oversold: "
        "16 GPUs requested within quota, 10 GPUs available."
    )
    assert lines[2] == "Left to divide by quota: 10 GPUs. a's portion of 50% is 5 GPUs."


def test_explanation_mentions_decayed_usage() -> None:
    mode = {"fairshare": {"mode": "time_based", "k": 0.5}}
    lines = explain_share(gpu_division(10, [queue(A, 0, 10, usage=1.0), queue(B, 0, 10)], **mode), A)
    assert "a's portion of 50%, adjusted to 25% for its decayed usage of 1 (K 0.5), is 2.5 GPUs" in lines[2]


def test_explanation_hides_names_from_users_without_access() -> None:
    division = gpu_division(11, [queue(A, 2, 10, weight=1), queue(B, 2, 10, weight=4)])
    lines = " ".join(explain_share(division, A, lambda name: "another project" if name == B else name))
    assert "another project's (0.6 GPUs)" in lines
    assert "b's" not in lines


@on_random_clusters(10)
@given(cluster=st.one_of(clusters(), clusters(time_based=True)))
def test_fair_shares_can_be_recomputed_from_the_reported_requests(cluster: Any) -> None:
    snapshot = load(cluster).snapshot
    reports = decide(snapshot).queues
    for pool in snapshot.pools:
        nodes = [node for node in snapshot.nodes if node.pool == pool.name]
        mine = {report.queue: report for report in reports if report.pool == pool.name}
        requested = {name: report.requested for name, report in mine.items()}
        story = divide_requests(pool, nodes, snapshot.queues, requested)
        for division in story:
            for entry in division.inputs:
                assert entry.share == getattr(mine[entry.queue].share, division.resource)
        if len(snapshot.pools) == 1:  # a placement may change the demand in other pools
            assert story == divisions(snapshot, pool.name)
