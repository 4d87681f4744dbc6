"""Tests for submitting ended workloads again on the workload page and in the list."""

import re

from projects.models import Workload
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}


def ended(cast: Cast, name: str = "train", phase: str = "failed") -> Workload:
    return make.workload(cast.vision, name, by=cast.carol.user, phase=phase, run=1)


def test_ended_workload_is_resubmitted_with_one_button(cast: Cast, sign_in: SignIn) -> None:
    client = sign_in("dave")
    for phase in ("failed", "completed", "cancelled"):
        workload = ended(cast, phase, phase)
        path = f"/workloads/{workload.pk}/resubmit"
        for tab in ("", "/spec"):
            page = client.get(f"/workloads/{workload.pk}{tab}").content.decode()
            assert f'hx-post="{path}"' in page and ">Edit a copy<" in page, (phase, tab)
        answer = client.post(path, headers=HTMX)
        new = Workload.objects.get(name=f"{phase}-2")
        assert answer.headers["HX-Redirect"] == f"/workloads/{new.pk}"
        page = client.get(f"/workloads/{new.pk}").content.decode()
        assert f"<strong>{phase}-2</strong> resubmitted from <strong>{phase}</strong>." in page
        assert f'<dt>Resubmitted from</dt><dd><a href="/workloads/{workload.pk}">{phase}</a></dd>' in page
        assert f'hx-post="/workloads/{new.pk}/resubmit"' not in page, "it is live"


def test_ended_workload_page_links_to_its_latest_resubmission(cast: Cast, sign_in: SignIn) -> None:
    workload, client = ended(cast), sign_in("dave")
    path = f"/workloads/{workload.pk}"
    assert "resubmitted-as" not in client.get(path).content.decode()
    for name in ("train-2", "train-3"):
        client.post(f"{path}/resubmit", headers=HTMX)
        new = Workload.objects.get(name=name)
        for tab in ("", "/spec"):
            link = f'id="resubmitted-as">resubmitted as <a href="/workloads/{new.pk}">{name}</a>'
            assert link in client.get(path + tab).content.decode(), tab
        assert f"Resubmitted as {name} by dave." in client.get(f"{path}/timeline").content.decode()
    Workload.objects.filter(name="train-3").update(project=cast.speech)
    assert "resubmitted-as" not in client.get(path).content.decode(), "dave may not see it"


def test_resubmission_of_an_unfinished_run_mentions_a_missing_checkpoint(cast: Cast, sign_in: SignIn) -> None:
    workload, client = ended(cast), sign_in("dave")
    for checkpoint_at, note in ((None, True), (make.ago(minutes=1), False)):
        row = Workload.objects.filter(pk=workload.pk)
        row.update(started_at=make.ago(minutes=5), last_checkpoint_at=checkpoint_at)
        answer = client.post(f"/workloads/{workload.pk}/resubmit", headers=HTMX)
        page = client.get(answer.headers["HX-Redirect"]).content.decode()
        assert ("<strong>train</strong>, which wrote no checkpoint." in page) == note


def test_resubmission_without_scripts_requires_confirmation(cast: Cast, sign_in: SignIn) -> None:
    workload, client = ended(cast), sign_in("dave")
    path = f"/workloads/{workload.pk}/resubmit"
    assert "The document is submitted again as train-2." in client.get(path).content.decode()
    assert not Workload.objects.filter(name="train-2").exists()
    answer = client.post(path)
    assert answer.headers["Location"] == f"/workloads/{Workload.objects.get(name='train-2').pk}"


def test_document_that_is_no_longer_valid_opens_the_form_with_its_errors(cast: Cast, sign_in: SignIn) -> None:
    workload, client = ended(cast), sign_in("dave")
    Workload.objects.filter(pk=workload.pk).update(spec={**workload.spec, "pools": ["gone"]})
    opened = client.post(f"/workloads/{workload.pk}/resubmit", headers=HTMX).headers["HX-Redirect"]
    page = client.get(opened).content.decode()
    assert 'value="train-2"' in page and "pools[0]" in page
    assert Workload.objects.count() == 1


def test_resubmission_is_the_emphasized_action_on_all_tabs_of_an_ended_workload(
    cast: Cast, sign_in: SignIn
) -> None:
    workload, client = ended(cast), sign_in("dave")
    for tab in ("", "/timeline", "/spec"):
        page = client.get(f"/workloads/{workload.pk}{tab}").content.decode()
        primary = re.findall(r'<(?:a|button) class="button primary"[^>]*>([^<]+)<', page)
        assert primary == ["Resubmit"] and "button danger" not in page, tab
    admin = sign_in("alice").get(f"/workloads/{workload.pk}").content.decode()
    assert re.findall(r'<a class="button danger" id="([^"]*)"', admin) == ["action-delete"]
    completed = client.get(f"/workloads/{ended(cast, 'done', 'completed').pk}").content.decode()
    assert re.findall(r'<(?:a|button) class="button primary"[^>]*>([^<]+)<', completed) == ["Resubmit"]


def test_viewers_see_no_button_and_may_not_resubmit(cast: Cast, sign_in: SignIn) -> None:
    workload = ended(cast)
    for name, status in (("erin", 403), ("grace", 404)):
        client = sign_in(name)
        assert client.post(f"/workloads/{workload.pk}/resubmit").status_code == status
    assert "resubmit" not in sign_in("erin").get(f"/workloads/{workload.pk}").content.decode()


def test_one_selected_workload_is_resubmitted_immediately(cast: Cast, sign_in: SignIn) -> None:
    workload, client = ended(cast), sign_in("dave")
    listed = client.get("/workloads?state=ended").content.decode()
    assert 'data-actions="resubmit"' in listed, "dave may not delete carol's workload"
    answer = client.post("/workloads/resubmit", {"w": [str(workload.pk)]}, headers=HTMX, follow=True)
    assert answer.headers["HX-Redirect"] == f"/workloads/{Workload.objects.get(name='train-2').pk}"


def test_several_selected_workloads_are_resubmitted_after_a_confirmation(cast: Cast, sign_in: SignIn) -> None:
    chosen, client = [ended(cast, name) for name in ("one", "two")], sign_in("dave")
    Workload.objects.filter(name="two").update(spec={**chosen[1].spec, "pools": ["gone"]})
    live = make.workload(cast.vision, "live", by=cast.dave.user)
    selected = {"w": [str(row.pk) for row in (*chosen, live)]}
    dialog = client.post("/workloads/resubmit", selected, headers=HTMX).content.decode()
    assert "Resubmit 2 workloads?" in dialog and "Not yet ended:" in dialog
    assert Workload.objects.count() == 3
    answer = client.post("/workloads/resubmit", {**selected, "confirmed": "1"}, headers=HTMX)
    assert "1 workload submitted again. two: " in answer.headers["HX-Trigger"]
    assert set(Workload.objects.values_list("name", flat=True)) == {"one", "one-2", "two", "live"}
