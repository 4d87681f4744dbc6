"""Browser tests for workloads whose code comes from a Git server."""

import os
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from projects.actor import Actor
from projects.models import CodeFetch, Project
from projects.services import workloads
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import NARROW
from tests.browser.every_page.pages import OVERFLOW
from tests.cast import training
from tests.harness.samples import sample

URL = "https://git.example.org/vision/train.git"
WIDE = {"width": 1440, "height": 1000}


@pytest.mark.heavy
@pytest.mark.parametrize("viewport", sample([WIDE, NARROW]))
def test_repository_is_entered_in_the_submission_form(opened: Open, viewport: Any) -> None:
    with opened("dave", viewport=viewport) as (page, faults):
        page.goto("/submit?kind=single&project=vision")
        expect(page.get_by_label("Repository URL")).to_be_hidden()
        page.get_by_role("radio", name="Git repository").check()
        repository = page.get_by_label("Repository URL")
        repository.fill("http://git.example.org/vision/train.git")
        repository.press("Tab")
        expect(page.locator("#w-f-code-git-url")).to_contain_text("Uses the protocol http, which is not")
        repository.fill(URL)
        page.get_by_label("Branch, tag or commit").fill("v2")
        page.get_by_label("Branch, tag or commit").press("Tab")
        expect(page.locator("#w-code")).to_contain_text(f"Git repository: {URL}")
        assert f"url: {URL}\n    ref: v2\n" in page.locator("#document").input_value()
        assert not page.evaluate(OVERFLOW)
        assert accessibility_faults(page) == []
        assert faults == []


@pytest.mark.heavy
@pytest.mark.parametrize("viewport", sample([WIDE, NARROW]))
def test_page_shows_fetch_errors_and_then_the_fetched_commit(
    opened: Open, scene: Scene, settings: Any, viewport: Any
) -> None:
    settings.BERTH_LOCAL_URL = settings.BERTH_PUBLIC_URL = "http://127.0.0.1:8000"
    dave = Actor.for_user(scene.people["dave"])
    project = Project.objects.get(name="vision")
    document = training("from-git") | {"code": {"git": {"url": URL, "ref": "v2", "directory": "jobs/train"}}}
    workload = workloads.submit(actor=dave, project=project, document=document)
    CodeFetch.objects.update(error="The host git.example.org cannot be found: Name or service not known.")
    with opened("dave", viewport=viewport) as (page, faults):
        page.goto(f"/workloads/{workload.pk}")
        expect(page.get_by_role("link", name="not fetched")).to_be_visible()
        shot(page, f"pending-{viewport['width']}")
        page.goto(f"/workloads/{workload.pk}/spec")
        expect(page.get_by_text("Not fetched yet")).to_be_visible()
        shot(page, f"waiting-{viewport['width']}")
        CodeFetch.objects.update(state="fetched", error="", commit="3b18e512db" * 4, branch="main")
        page.reload()
        expect(page.get_by_text("3b18e512db" * 4)).to_be_visible()
        assert not page.evaluate(OVERFLOW)
        assert accessibility_faults(page) == []
        shot(page, f"fetched-{viewport['width']}")
        assert faults == []


def shot(page: Page, name: str) -> None:
    if folder := os.environ.get("SHOTS"):
        for scheme in ("light", "dark"):
            page.evaluate("scheme => document.documentElement.dataset.theme = scheme", scheme)
            page.screenshot(path=f"{folder}/{name}-{scheme}.png", full_page=True)
        page.evaluate("() => delete document.documentElement.dataset.theme")
