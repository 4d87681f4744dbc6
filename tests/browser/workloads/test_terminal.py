"""Browser tests for the terminal on the workload page, in a pod that runs real processes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.sessions.models import Session
from playwright.sync_api import Page, expect

from pools.runtimes.local import LocalRuntime
from projects.models import Audit, Membership, Workload
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import NARROW
from tests.contracts.pods import ended, order, running

pytestmark = pytest.mark.timeout(300)

RED = r"printf '\033[38;2;200;0;0mtrue colour\033[0m\n'"


@pytest.fixture
def workload(scene: Scene, home: Path) -> Iterator[Workload]:
    workload = scene.workloads["diffusion-xl"]
    scene.pools["train"].runtime = "local"
    scene.pools["train"].save()
    pod_id = str(workload.pods.order_by("rank")[0].pk)
    runtime = LocalRuntime(home / "run", anchor="")
    runtime.start(order(pod_id, "sh", "-c", "sleep 3600"))
    running(runtime, pod_id)
    yield workload
    runtime.stop(pod_id, 0)
    ended(runtime, pod_id)
    runtime.forget(pod_id)
    runtime.drop_log(pod_id)


def open_terminal(page: Page, workload: Workload) -> None:
    page.goto(f"/workloads/{workload.pk}/terminal")
    page.get_by_role("button", name="Open terminal").click()
    expect(page.get_by_role("status").filter(has_text="Connected to worker-0.")).to_be_visible()


def run(page: Page, command: str, output: str | re.Pattern[str]) -> None:
    page.keyboard.type(f"{command}\n")
    expect(page.locator(".terminal-pane:visible .xterm-rows")).to_contain_text(output)


@pytest.mark.heavy
def test_terminal_can_be_resized_and_survives_a_flood_of_output(opened: Open, workload: Workload) -> None:
    with opened("dave") as (page, faults):
        open_terminal(page, workload)
        run(page, "echo sum-$((40 + 2))", "sum-42")
        run(page, RED, "true colour")
        shown = page.locator(".xterm-rows").get_by_text("true colour", exact=True).last
        expect(shown).to_have_css("color", "rgb(200, 0, 0)")
        run(page, "trap 'echo size-$(stty size | tr \" \" x)' WINCH; echo rea''dy", "ready")
        page.set_viewport_size({"width": 1000, "height": 900})
        expect(page.locator(".xterm-rows")).to_contain_text(re.compile(r"size-\d+x\d+"))
        run(page, "yes flood", "flood")
        page.get_by_role("button", name="Switch between light and dark").click()
        expect(page.locator(":root")).to_have_attribute("data-theme", re.compile("light|dark"))
        page.locator(".xterm-helper-textarea").focus()
        page.keyboard.press("Control+c")
        run(page, "echo sum-$((50 + 2))", "sum-52")
        run(page, "exit 3", "The shell exited with code 3.")
        page.get_by_role("button", name="Restart shell").click()
        run(page, "echo sum-$((60 + 2))", "sum-62")
        assert faults == []


@pytest.mark.heavy
def test_multiple_terminals_are_keyboard_accessible_and_close_with_the_session(
    opened: Open, workload: Workload
) -> None:
    with opened("dave", permissions=["clipboard-read", "clipboard-write"]) as (page, faults):
        open_terminal(page, workload)
        page.get_by_label("Screen reader mode").check()
        page.get_by_role("button", name="Open terminal").click()
        expect(page.get_by_role("tab")).to_have_text(["1: worker-0", "2: worker-0"])
        expect(page.get_by_role("textbox", name="Terminal 2 in worker-0")).to_be_focused()
        run(page, "echo sum-$((40 + 2))", "sum-42")
        assert accessibility_faults(page) == []
        page.keyboard.press("Tab")
        expect(page.get_by_role("textbox", name="Terminal 2 in worker-0")).to_be_focused()
        page.keyboard.press("Control+Shift+L")
        expect(page.get_by_role("tab", selected=True)).to_be_focused()
        page.keyboard.press("ArrowLeft")
        expect(page.get_by_role("tab", name="1: worker-0")).to_be_focused()
        page.keyboard.press("Tab")
        page.evaluate("navigator.clipboard.writeText('echo pasted-$((1 + 1))')")
        page.locator(".terminal-pane:visible textarea").focus()
        page.keyboard.press("Control+Shift+V")
        run(page, "", "pasted-2")
        page.locator(".terminal-pane:visible .xterm-rows").get_by_text("pasted-2").dblclick()
        page.get_by_role("button", name="Copy selection").click()
        expect(page.get_by_text("Selection copied.")).to_be_visible()
        assert "pasted-2" in page.evaluate("navigator.clipboard.readText()")
        page.get_by_role("button", name="Close terminal").click()
        expect(page.get_by_role("tab")).to_have_text(["2: worker-0"])
        assert faults == []
        Session.objects.all().delete()
        expect(page.locator("#terminal-status")).to_contain_text("You are signed out")
        assert Audit.objects.filter(action="open_shell").count() == 2


@pytest.mark.heavy
def test_terminal_closes_when_the_role_is_revoked(opened: Open, workload: Workload) -> None:
    with opened("dave", viewport=NARROW) as (page, faults):
        open_terminal(page, workload)
        page.get_by_role("button", name="Ctrl+C", exact=True).click()
        expect(page.locator(".xterm-rows")).to_contain_text("^C")
        run(page, "echo sum-$((40 + 2))", "sum-42")
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        assert faults == []
        Membership.objects.filter(user=workload.submitted_by).delete()
        expect(page.locator("#terminal-status")).to_contain_text("The terminal is closed.")
        expect(page.get_by_role("button", name="Restart shell")).to_be_visible()
