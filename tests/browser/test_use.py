"""Claims about resource use on pages: it comes anew by itself and keeps what a reader has opened."""

from playwright.sync_api import expect

from scheduler.models import PodUse
from tests.browser.conftest import Open
from tests.browser.scene import Scene

REFRESH = "htmx.ajax('GET', document.querySelector('#use [hx-trigger]').getAttribute('hx-get'), '#use')"


def test_use_comes_anew_and_keeps_what_was_opened_and_how_far_back(opened: Open, scene: Scene) -> None:
    workload = scene.workloads["diffusion-xl"]
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{workload.pk}")
        use = page.locator("#use")
        expect(use).to_contain_text("of 16 cores")
        page.get_by_role("link", name="6 hours").click()
        expect(page.get_by_role("link", name="6 hours")).to_have_attribute("aria-current", "true")
        use.get_by_text("By pod", exact=True).click()
        PodUse.objects.filter(pod__workload=workload).update(cpu_milli=125)
        page.evaluate(REFRESH)
        expect(use.locator("dd").first).to_have_text("1")
        expect(use.locator("#use-pods")).to_have_attribute("open", "")
        expect(page.get_by_role("link", name="6 hours")).to_have_attribute("aria-current", "true")
        assert faults == []


def test_a_nodes_page_fetches_what_is_used_there(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        page.goto("/nodes/train-0")
        expect(page.get_by_role("heading", name="Utilization")).to_be_visible()
        expect(page.locator("#use")).to_contain_text("GPU 7: 59 % used")
        assert faults == []


def test_gpus_that_idle_are_marked_where_work_is_listed(opened: Open, scene: Scene) -> None:
    with opened("grace") as (page, _):
        page.goto("/workloads")
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="embedding-refresh"))
        expect(row).to_contain_text("GPUs idle")
        page.get_by_role("link", name="embedding-refresh").click()
        expect(page.get_by_text("GPUs idle since")).to_be_visible()
