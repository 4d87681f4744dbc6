"""Text of the workload list if no workload matches the filters."""

from collections.abc import Sequence
from dataclasses import replace

from berth.core.wording.words import format_count
from projects.web.workloads.listing.filters import StateCount, WorkloadFilters


def describe_no_matches(filters: WorkloadFilters, states: Sequence[StateCount]) -> dict[str, str]:
    """Return the title and text of an empty list, and a sentence about matches in other states, if any."""
    state = "" if filters.state == "all" else f"{filters.state} "
    total = next((each.count for each in states if each.state == "all"), 0)
    text = "No workloads match these filters."
    if filters.search:
        text = "The search matches parts of names, projects and users, the start of an ID, or label=value."
        if replace(filters, search="").is_filtered:
            text = "Other filters are set. Clear them, or change the search."
    return {
        "no_match_title": f'No {state}workloads match "{filters.search}"' if filters.search else "No matches",
        "no_match_text": text,
        "in_other_states": _describe_other_states(total) if total and filters.state != "all" else "",
    }


def _describe_other_states(total: int) -> str:
    return f"{format_count(total, 'workload')} in other states {'matches' if total == 1 else 'match'}."
