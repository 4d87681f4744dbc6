"""Tests for the notes below the numbers on the overview."""

import re

import pytest

from projects.models import Workload
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.overview.test_overview_page import figure


def test_each_tile_note_states_one_fact(cast: Cast, sign_in: SignIn, running: Workload) -> None:
    make.node(make.pool("other"), gpus=2)
    make.workload(cast.vision, "paused", phase="suspended")
    make.eviction(running, running, cast.pool, at=make.ago(minutes=5))
    client = sign_in("dave")
    text = " ".join(figure(client, "GPUs free")[1].split())
    assert re.fullmatch(rf"\S+ {cast.pool.name} \S+, other 2", text)
    assert figure(client, "Pending")[1].split() == ["0", "plus", "1", "suspended"]
    assert "latest" in figure(client, "Evictions (24 h)")[1]


@pytest.mark.heavy
def test_moved_workloads_do_not_count_as_evictions(cast: Cast, sign_in: SignIn, running: Workload) -> None:
    for kind, count in (("reclaim", 2), ("consolidate", 1)):
        for _ in range(count):
            make.eviction(running, running, cast.pool, kind=kind)
    assert figure(sign_in("dave"), "Evictions (24 h)")[1].split() == ["2", "and", "1", "moved"]
