"""Fixtures for tests of workload pages."""

import pytest

from projects.models import Workload, WorkloadArray
from projects.services import arrays
from tests import factories as make
from tests.cast import Cast, training


@pytest.fixture
def sweep(cast: Cast) -> WorkloadArray:
    """Return an array of 120 tasks: one completed, two failed, one running, the rest pending or held."""
    document = {**training("sweep", array={"tasks": 120, "max_running": 50}), "project": "vision"}
    array = arrays.submit(actor=cast.dave, document=document).array
    tasks = Workload.objects.filter(array=array)
    tasks.filter(array_index=0).update(phase="completed", ended_at=make.ago(minutes=1))
    tasks.filter(array_index__in=(1, 2)).update(phase="failed", ended_at=make.ago(minutes=1))
    tasks.filter(array_index=3).update(phase="running")
    return array
