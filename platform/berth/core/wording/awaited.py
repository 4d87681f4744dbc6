"""Wording for workloads that must end before another workload is expected to start."""

from collections.abc import Sequence

from berth.core.wording.words import join_words

MAX_NAMED = 3  # maximum number of workloads named in a clause


def describe_workload_ends(ends: Sequence[tuple[str, str]]) -> str:
    """Return a clause such as "when ads/nightly (05:58) and ads/refresh (06:04) end", or "".

    `ends` are pairs of a workload and a formatted time, in order. Only the last few are named.
    """
    if not ends:
        return ""
    named = [f"{workload} ({time})" for workload, time in ends[-MAX_NAMED:]]
    if len(ends) > MAX_NAMED:
        return f"when {join_words(named)} and workloads before them end"
    return f"when {join_words(named)} {'ends' if len(named) == 1 else 'end'}"
