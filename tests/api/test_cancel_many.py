"""Cancelling several workloads, where one refusal does not stop the others."""

from projects.models import Workload
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast


def test_each_is_answered_for_itself(cast: Cast, dave: Caller) -> None:
    mine = make.workload(cast.vision, "mine", by=cast.dave.user)
    carols = make.workload(cast.vision, "carols", by=cast.carol.user)
    ended = make.workload(cast.vision, "ended", by=cast.dave.user, phase="failed")
    hidden = make.workload(cast.ads, "hidden")
    ids = [str(row.pk) for row in (mine, carols, ended, hidden, mine)]
    told = dave.post("workloads/cancel", {"ids": ids}).json()
    assert told["cancelled"] == [str(mine.pk)]
    refused = {each["id"]: each["reason"] for each in told["refused"]}
    assert set(refused) == {str(carols.pk), str(ended.pk), str(hidden.pk)}
    assert "has already ended" in refused[str(ended.pk)]
    assert refused[str(hidden.pk)] == "There is no workload with that id."
    assert Workload.objects.get(name="carols").phase == "pending"


def test_a_list_that_cannot_be_read_is_refused(dave: Caller) -> None:
    assert dave.post("workloads/cancel", {"ids": []}).status_code == 422
    assert dave.post("workloads/cancel", {"ids": ["x"]}).status_code == 422
