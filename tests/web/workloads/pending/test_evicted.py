"""Tests for the page of a workload that is pending since an eviction or an edit."""

from projects.models import Workload
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn


def test_header_states_when_a_pending_workload_was_evicted(cast: Cast, sign_in: SignIn) -> None:
    ours = make.workload(
        cast.vision, "ours", run=1, preemptions=1, reason="Backoff", started_at=make.ago(minutes=60)
    )
    theirs = make.workload(cast.vision, "theirs", phase="running")
    eviction = make.eviction(ours, theirs, cast.pool, at=make.ago(minutes=12))
    client = sign_in("dave")
    for tab in ("", "/timeline", "/spec"):
        head = client.get(f"/workloads/{ours.pk}{tab}").content.decode().partition("</h1>")[0]
        assert f'id="evicted" href="/evictions/{eviction.pk}">evicted <time' in head, tab
    Workload.objects.filter(pk=ours.pk).update(phase="running", started_at=make.ago(minutes=1))
    assert 'id="evicted"' not in client.get(f"/workloads/{ours.pk}").content.decode()


def test_header_states_when_an_edit_reset_the_queue_time(cast: Cast, sign_in: SignIn) -> None:
    workload = make.workload(cast.vision, "train", pending_since=make.ago(minutes=30))
    path, words = f"/workloads/{workload.pk}", "queue time reset <time"
    client = sign_in("dave")
    assert words not in client.get(path).content.decode()
    Workload.objects.filter(pk=workload.pk).update(requeued_at=make.ago(minutes=5))
    assert words in client.get(path).content.decode()
