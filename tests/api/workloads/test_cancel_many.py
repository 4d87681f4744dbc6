"""Tests for cancelling several workloads in one request."""

from projects.models import Workload
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast


def test_failed_cancellation_does_not_prevent_further_cancellations(cast: Cast, dave: Caller) -> None:
    mine = make.workload(cast.vision, "mine", by=cast.dave.user)
    carols = make.workload(cast.vision, "carols", by=cast.carol.user)
    ended = make.workload(cast.vision, "ended", by=cast.dave.user, phase="failed")
    hidden = make.workload(cast.ads, "hidden")
    ids = [str(row.pk) for row in (mine, carols, ended, hidden, mine)]
    answer = dave.post("workloads/cancel", {"ids": ids}).json()
    assert answer["cancelled"] == [str(mine.pk)]
    rejected = {item["id"]: item["reason"] for item in answer["rejected"]}
    assert set(rejected) == {str(carols.pk), str(ended.pk), str(hidden.pk)}
    assert "has already ended" in rejected[str(ended.pk)]
    assert rejected[str(hidden.pk)].startswith(f"There is no workload with the ID {hidden.pk}.")
    assert Workload.objects.get(name="carols").phase == "pending"


def test_invalid_list_of_ids_is_rejected(dave: Caller) -> None:
    assert dave.post("workloads/cancel", {"ids": []}).status_code == 422
    assert dave.post("workloads/cancel", {"ids": ["x"]}).status_code == 422
