"""Test a day of four users on a running installation in a real browser."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.driver.chromium import PROGRAM, chromium
from tests.journeys.in_browser.pages import SLOW, signed_in, wait_until_running
from tests.journeys.installation import ROOT, Installation

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.browser,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not Path(PROGRAM).exists(), reason=f"{PROGRAM} is not installed"),
]
DOCUMENTS = ROOT / "examples" / "main-job"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


def submit(page: Page, name: str) -> None:
    page.goto("/submit")
    document = (DOCUMENTS / f"{name}.yaml").read_text()
    # The workload runs longer than the test.
    page.locator("#document").fill(document.replace('"600"', '"1000000"'))


def send(page: Page, name: str) -> None:
    page.get_by_role("button", name="Submit workload", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)


def test_eviction_after_a_quota_change_is_explained_and_audited(
    berth: Installation, browser: Browser, tmp_path: Path
) -> None:
    with signed_in(browser, berth, "dave") as dave, signed_in(browser, berth, "grace") as grace:
        borrow_gpus(dave)
        reclaim_quota(grace)
        read_eviction_reason(dave)
        with signed_in(browser, berth, "admin") as admin:
            change_quotas(admin)
            expect(dave.get_by_role("heading", level=1)).to_contain_text("Running", timeout=SLOW)
            check_audit(admin, tmp_path)
    with signed_in(browser, berth, "erin") as erin:
        view_as_viewer(erin)


def borrow_gpus(dave: Page) -> None:
    """Submit two gangs as a member of vision, which has a quota of 2 GPUs, and watch them run on 8 GPUs."""
    for name in ("older", "younger"):
        submit(dave, name)
        send(dave, name)
        wait_until_running(dave)
    expect(dave.get_by_role("log")).to_contain_text("step", timeout=SLOW)


def reclaim_quota(grace: Page) -> None:
    """Check as a member of ads, before submitting, that a workload of vision would be evicted."""
    submit(grace, "ranking")
    expect(grace.get_by_role("heading", name="Would start")).to_be_visible(timeout=SLOW)
    expect(grace.locator("#answer")).to_contain_text("vision")
    grace.get_by_role("button", name="Submit and evict", exact=True).click()
    question = grace.locator("#dialog")
    expect(question).to_contain_text("vision")
    question.get_by_role("button", name="Submit and evict").click()
    expect(grace.get_by_role("heading", level=1)).to_contain_text("ranking")
    wait_until_running(grace)


def read_eviction_reason(dave: Page) -> None:
    """Check that the page updates itself and links to the eviction, which shows its rule and numbers."""
    expect(dave.get_by_role("heading", level=1)).to_contain_text("Pending", timeout=SLOW)
    reason = dave.get_by_role("region", name="Pending reason")
    expect(reason).to_contain_text("by a 4-GPU workload in project ads, which reclaimed 4 GPUs.")
    address = dave.url
    reason.get_by_role("link", name="Show eviction").click()
    expect(dave.get_by_role("heading", level=1)).to_contain_text("younger was reclaimed")
    expect(dave.get_by_role("main")).to_contain_text("quota")
    dave.goto(address)
    expect(reason).to_contain_text(
        "Would exceed fair share", timeout=SLOW
    )  # the workload first waits for its backoff to end


def change_quotas(admin: Page) -> None:
    """Preview and apply a quota change from ads to vision as an admin."""
    admin.goto("/quotas", wait_until="networkidle")
    for owner, gpus in (("research", "8"), ("vision", "8"), ("product", "0"), ("ads", "0")):
        cell = admin.locator(f"#quota-grid tbody tr[data-name='{owner}'] td").first
        cell.focus()
        admin.keyboard.type(gpus)
        admin.keyboard.press("Enter")
    admin.get_by_role("button", name="Preview impact").click()
    impact = admin.get_by_role("region", name="In pool local")
    expect(impact).to_contain_text("younger")
    expect(impact).to_contain_text("ranking")
    admin.get_by_role("button", name="Apply").click()
    question = admin.locator("#dialog")
    expect(question.get_by_role("heading", name="Evict 1 workload?")).to_be_visible()
    question.get_by_role("button", name="Apply changes").click()
    expect(admin.get_by_text("4 quotas saved.")).to_be_visible()


def check_audit(admin: Page, place: Path) -> None:
    """Check that the audit log and its CSV file show both evictions.

    The activity names the author of the quota change.
    """
    admin.goto("/evictions")
    for gave, took in (("ranking", "younger"), ("younger", "ranking")):
        row = admin.get_by_role("row").filter(has=admin.get_by_role("link", name=gave, exact=True))
        expect(row.first).to_contain_text(took)
    with admin.expect_download() as download:
        admin.get_by_role("link", name="CSV").first.click()
    download.value.save_as(place / "evictions.csv")
    rows = list(csv.DictReader((place / "evictions.csv").open()))
    assert {row["workload_name"] for row in rows} == {"ranking", "younger"}
    admin.goto("/quotas/changes")
    expect(admin.get_by_role("main")).to_contain_text("admin")
    expect(admin.get_by_role("main")).to_contain_text("vision")


def view_as_viewer(erin: Page) -> None:
    """Check that a viewer of vision sees the eviction reason, but no workload of ads and no actions."""
    erin.goto("/evictions")
    expect(erin.get_by_role("main")).to_contain_text("younger")
    expect(erin.get_by_role("main")).not_to_contain_text("ranking")
    erin.goto("/workloads")
    expect(erin.get_by_role("main")).to_contain_text("older")
    expect(erin.get_by_role("link", name="Cancel")).to_have_count(0)
