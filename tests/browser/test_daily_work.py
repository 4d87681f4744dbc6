"""Browser tests for daily work: submissions, live updates, explanations and quotas."""

import re
import time

import pytest
from playwright.sync_api import Route, expect

from projects.actor import Actor
from projects.models import Quota, Workload
from projects.services import quotas, workloads
from tests.browser.conftest import Open
from tests.browser.data.scene import PASSWORD, Scene
from tests.journeys.installation import until

DOCUMENT = """\
name: from-here
project: vision
pools: [train]
command: sleep 1
roles:
  - {name: worker, replicas: 2, gpu: 1}
"""


def actor(scene: Scene, name: str) -> Actor:
    return Actor.for_user(scene.people[name])


def test_sign_in_returns_to_the_requested_page(opened: Open) -> None:
    with opened(None) as (page, faults):
        page.goto("/quotas")
        page.get_by_label("Username").fill("dave")
        page.get_by_label("Password", exact=True).fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("Wrong username or password")
        expect(page.get_by_label("Username")).to_have_value("dave")
        password = page.get_by_label("Password", exact=True)
        expect(password).to_be_focused()
        expect(password).to_have_accessible_description("Wrong username or password.")
        page.keyboard.type(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Quotas", level=1)).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/login")
        assert faults == []


@pytest.mark.heavy
def test_invalid_document_is_corrected_and_submitted(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, _):
        page.goto("/submit")
        page.locator("#document").fill(DOCUMENT.replace("gpu: 1", "gpu: 1.5"))
        page.get_by_role("button", name="Submit workload", exact=True).click()
        expect(page.get_by_role("heading", name="1 error")).to_be_visible()
        expect(page.get_by_text("roles[0].gpu")).to_be_visible()
        expect(page.locator("#document")).to_have_value(re.compile("1.5"))
        page.locator("#document").fill(DOCUMENT + "priority: 90\n")
        expect(page.get_by_role("heading", name="Would start and evict 1 other workload")).to_be_visible()
        expect(page.locator("#answer")).to_contain_text("vision/segment-eval")
        assert not Workload.objects.filter(name="from-here").exists()
        submit = page.get_by_role("button", name="Submit and evict", exact=True)
        submit.click()
        question = page.get_by_role("dialog")
        expect(question).to_contain_text("vision/segment-eval")
        question.get_by_role("button", name="Cancel").click()
        assert not Workload.objects.filter(name="from-here").exists()
        submit.click()
        question.get_by_role("button", name="Submit and evict").click()
        expect(page.get_by_role("heading", name="from-here")).to_be_visible()
        assert Workload.objects.get(name="from-here").submitted_by == scene.people["dave"]


def test_new_workload_appears_and_changes_without_a_reload(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        page.goto("/workloads")
        expect(page.locator(".live")).to_have_text("Connected")
        page.evaluate("window.stillTheSame = true")
        document = {"name": "appears", "command": "true", "roles": [{"replicas": 1, "gpu": 1}]}
        made = workloads.submit(
            actor=actor(scene, "dave"), project=scene.projects["vision"], document=document
        )
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="appears"))
        expect(row).to_contain_text("Pending")
        workloads.suspend(actor=actor(scene, "carol"), workload=made)
        expect(row).to_contain_text("Suspended")
        assert page.evaluate("window.stillTheSame")
        assert faults == []


@pytest.mark.heavy
def test_live_update_keeps_the_keyboard_focus(opened: Open, scene: Scene) -> None:
    vision, train = scene.projects["vision"], scene.pools["train"]
    with opened("bert") as (page, faults):
        page.goto("/quotas?pool=train")
        expect(page.locator(".live")).to_have_text("Connected")
        menu = page.get_by_label("Actions for speech")
        menu.focus()
        quotas.set_quota(actor=actor(scene, "ada"), owner=vision, pool=train, values={"gpu": 7})
        row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="vision"))
        expect(row.get_by_role("cell").nth(0)).to_have_text("7")
        expect(menu).to_be_focused()
        assert faults == []


@pytest.mark.heavy
def test_live_updates_wait_while_text_is_selected(opened: Open, scene: Scene) -> None:
    changed = "document.addEventListener('berth:changed', () => { window.hasChanged = true; })"
    with opened("ada") as (page, faults):
        page.goto("/workloads")
        expect(page.locator(".live")).to_have_text("Connected")
        row = page.get_by_role("row", name="policy-sweep")
        row.locator("a.plain-link").evaluate("link => getSelection().selectAllChildren(link)")
        page.evaluate(changed)
        workloads.suspend(actor=actor(scene, "ada"), workload=scene.workloads["policy-sweep"])
        page.wait_for_function("() => window.hasChanged && !document.querySelector('.htmx-request')")
        assert page.evaluate("getSelection().toString()") == "policy-sweep"
        expect(row).to_contain_text("Pending")
        page.evaluate("getSelection().removeAllRanges()")
        expect(row).to_contain_text("Suspended")
        assert faults == []


@pytest.mark.heavy
def test_change_during_a_page_update_triggers_another_update(opened: Open, scene: Scene) -> None:
    waiting = scene.workloads["policy-sweep"]
    with opened("ada") as (page, faults):
        page.goto(f"/workloads/{waiting.pk}")
        expect(page.locator(".live")).to_have_text("Connected")
        fetched = []

        def delay_first(route: Route) -> None:
            fetched.append(route.request.url)
            if len(fetched) > 1:  # this is the second fetch
                route.fallback()
                return
            response = route.fetch()
            workloads.resume(actor=actor(scene, "ada"), workload=waiting)
            time.sleep(1)
            route.fulfill(response=response)
            fetched.append("delayed response")

        page.route(f"**/workloads/{waiting.pk}", delay_first)
        workloads.suspend(actor=actor(scene, "ada"), workload=waiting)
        until(lambda: page.evaluate("0") == 0 and len(fetched) > 2)
        expect(page.get_by_role("heading", level=1)).to_contain_text("Pending")
        assert faults == []


@pytest.mark.heavy
def test_page_polls_if_the_websocket_is_unavailable(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, _):
        page.route_web_socket("**/ws/live?*", lambda socket: socket.close())
        page.goto("/workloads")
        expect(page.locator(".live")).to_have_text("Updates every 5 s")
        document = {"name": "polled", "command": "true", "roles": [{"replicas": 1, "gpu": 1}]}
        workloads.submit(actor=actor(scene, "dave"), project=scene.projects["vision"], document=document)
        expect(page.get_by_role("link", name="polled")).to_be_visible(timeout=10_000)


@pytest.mark.heavy
def test_list_filters_are_in_the_url_and_survive_a_reload(opened: Open) -> None:
    with opened("ada") as (page, faults):
        page.goto("/workloads")
        page.get_by_label("Project").select_option("vision")
        page.wait_for_url(re.compile("project=vision"))  # each step needs the response to the previous step
        page.get_by_role("link", name=re.compile("^Running")).click()
        page.wait_for_url(re.compile("state=running"))
        page.get_by_role("searchbox").fill("segment")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.wait_for_url(re.compile("search=segment"))
        for part in ("project=vision", "search=segment"):
            assert part in page.url
        assert "pool=" not in page.url, "unset filters are left out"
        page.reload()
        expect(page.locator("tbody tr")).to_have_count(1)
        with page.expect_event("load"):  # going back reloads the page; an earlier click would have no effect
            page.go_back()
        page.get_by_role("link", name="GPUs").click()
        page.wait_for_url(re.compile("sort=-gpus"))
        assert faults == []


@pytest.mark.heavy
def test_evicted_workload_shows_reason_and_preemptor(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        page.goto("/")
        page.get_by_role("link", name="detr-long").first.click()
        expect(page.get_by_role("region", name="Pending reason")).to_contain_text("after 1 eviction")
        expect(page.locator("#head")).to_contain_text("Queue position 6 in pool train")
        change = page.get_by_role("region", name="Smallest change")
        expect(change).to_contain_text("No single change would start the workload now.")
        eviction = page.locator("#last-eviction")
        expect(eviction).to_contain_text("by a 4-GPU workload in project ads, which reclaimed 4 GPUs.")
        expect(eviction).not_to_contain_text("ctr-nightly")
        eviction.get_by_role("link", name="Show eviction").click()
        heading = "detr-long was reclaimed for a 4-GPU workload in project ads"
        expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
        expect(page.get_by_text("stays within its quota")).to_be_visible()
        row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="vision"))
        assert [cell.strip() for cell in row.get_by_role("cell").all_inner_texts()][:4] == [
            "8",
            "12",
            "16",
            "12",
        ]
        assert faults == []


@pytest.mark.heavy
def test_cancel_requires_confirmation_and_escape_closes_the_dialog(opened: Open, scene: Scene) -> None:
    waiting = scene.workloads["ablation-7"]
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{waiting.pk}")
        page.get_by_role("link", name="Cancel workload").click()
        expect(page.get_by_role("dialog")).to_contain_text("Cancel ablation-7?")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        waiting.refresh_from_db()
        assert waiting.phase == "pending"
        page.get_by_role("link", name="Cancel workload").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel workload").click()
        expect(page.get_by_text("ablation-7 is being cancelled.")).to_be_visible()
        expect(page.locator("h1")).to_contain_text("Cancelled")
        assert faults == []


@pytest.mark.heavy
def test_quota_is_edited_with_the_keyboard(opened: Open, scene: Scene) -> None:
    with opened("bert") as (page, _):
        page.goto("/quotas?pool=train")
        page.get_by_label("Actions for speech").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.locator("#quota_gpu").fill("30")
        page.locator("#quota_limit_gpu").fill("10")
        page.keyboard.press("Enter")
        expect(page.locator("#quota_gpu_error")).to_contain_text("at most 10")
        expect(page.locator("#quota_gpu")).to_be_focused()
        page.locator("#quota_gpu").fill("9")
        page.keyboard.press("Enter")
        expect(page.get_by_text("Quota of speech in pool train saved.")).to_be_visible()
        row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="speech"))
        expect(row.get_by_role("cell").nth(0)).to_have_text("9")
        assert Quota.objects.get(project=scene.projects["speech"]).gpu_milli == 9000


@pytest.mark.heavy
def test_conflicting_quota_edit_preserves_both_changes(opened: Open, scene: Scene) -> None:
    vision, train = scene.projects["vision"], scene.pools["train"]
    with opened("bert") as (page, _):
        page.goto("/quotas?pool=train")
        page.get_by_label("Actions for vision").click()
        page.get_by_role("link", name="Edit the quota for vision").click()
        page.locator("#quota_gpu").fill("7")
        quotas.set_quota(actor=actor(scene, "ada"), owner=vision, pool=train, values={"weight": 5})
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Someone else changed this quota")).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text("Changed by ada")
        expect(page.locator("#quota_weight")).to_have_value("5")
        expect(page.locator("#quota_gpu")).to_have_value("7.0")
        page.get_by_role("button", name="Overwrite quota").click()
        expect(page.get_by_text("Quota of vision in pool train saved.")).to_be_visible()
    quota = Quota.objects.get(project=vision, pool=train)
    assert (quota.gpu_milli, quota.weight_gpu) == (7000, 5.0)


@pytest.mark.heavy
def test_node_is_drained_from_the_pool_page(opened: Open, scene: Scene) -> None:
    with opened("ada") as (page, faults):
        page.goto("/node-pools/train")
        node = page.get_by_role("article", name="Node train-1")
        expect(node).to_contain_text("segment-eval")
        node.get_by_role("link", name="Drain train-1").click()
        page.get_by_role("dialog").get_by_label("Reason").fill("new driver")
        page.get_by_role("dialog").get_by_role("button", name="Drain").click()
        expect(page.get_by_text("train-1 is being drained.")).to_be_visible()
        expect(node).to_contain_text("Draining")
        assert faults == []


def test_url_of_a_filtered_list_contains_columns_only_if_they_were_chosen(opened: Open) -> None:
    with opened("ada") as (page, faults):
        page.goto("/workloads")
        page.get_by_label("Kind").select_option("Interactive session")
        page.wait_for_url(re.compile(r"/workloads\?(?!.*columns).*kind=interactive"))
        page.locator("#columns > summary").click()
        page.get_by_role("checkbox", name="Priority").check()
        page.wait_for_url(re.compile("columns=priority"))
        expect(page.get_by_role("columnheader", name="Priority")).to_be_visible()
        assert faults == []
