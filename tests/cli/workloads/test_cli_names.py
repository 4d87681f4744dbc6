"""Tests for `berth submit` with a name that is in use."""

import pytest

from projects.models import Workload
from tests import factories as make
from tests.cast import Cast
from tests.cli.conftest import Berth, token_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_error_for_a_name_in_use_suggests_a_free_name(berth: Berth, cast: Cast) -> None:
    dave = {"BERTH_TOKEN": token_of(cast.dave)}
    make.workload(cast.vision, "train")
    make.workload(cast.vision, "train-2", phase="completed")
    rejected = berth("submit", "-n", "train", "-p", "vision", "--", "true", **dave)
    assert (rejected.returncode, rejected.stdout) == (5, "")
    assert rejected.stderr == (
        "berth: vision already has a live workload named train. "
        "Choose another name, such as train-3, or wait until train ends.\n"
    )
    rejected = berth("submit", "-n", "train", "-p", "vision", "--array", "0-3", "--", "true", **dave)
    assert rejected.stderr == (
        "berth: The name train is in use by a live workload of vision. "
        "Choose another name, such as train-3, or wait until that one ends.\n"
    )
    assert Workload.objects.count() == 2
