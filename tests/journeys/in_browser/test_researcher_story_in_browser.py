"""A researcher's path from a directory to the best model, using only pages."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.driver.chromium import PROGRAM, chromium
from tests.journeys.guide import guide_examples
from tests.journeys.in_browser.pages import SLOW, signed_in, wait_until_running
from tests.journeys.installation import Installation

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.browser,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not Path(PROGRAM).exists(), reason=f"{PROGRAM} is not installed"),
]
PROGRAM_TEXT, TRAIN, SWEEP = guide_examples("A complete example")[:3]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    directory = tmp_path / "line"
    directory.mkdir()
    for name, content in (("train.py", PROGRAM_TEXT), ("train.yaml", TRAIN), ("sweep.yaml", SWEEP)):
        (directory / name).write_text(content)
    return directory


def test_researcher_submits_a_directory_and_downloads_the_best_model(
    shared_berth: Installation, browser: Browser, checkout: Path, tmp_path: Path
) -> None:
    with signed_in(browser, shared_berth, "dave") as page:
        train = submit_with_code(page, checkout)
        open_shell(page)
        watch_metric(page)
        urgent = submit_urgent(page, train)
        raise_priority(page)
        check_that_train_was_preempted_and_resumed(page, train)
        array = run_array(page, checkout)
        download_best_model(page, tmp_path)
        clean_up(page, train, urgent, array)


def submit_with_code(page: Page, checkout: Path) -> str:
    """Paste the document, select the directory and send its files. Return the workload's URL."""
    page.goto("/submit")
    page.locator("#document").fill(TRAIN)
    expect(page.locator("#document-faults")).to_contain_text("under Code")
    page.get_by_role("radio", name="Files from this computer").check()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Select directory").click()
    chooser.value.set_files(str(checkout))
    page.get_by_role("button", name="Send 3 files").click()
    expect(page.locator("#w-code")).to_contain_text("3 files", timeout=SLOW)
    page.get_by_role("button", name="Submit workload", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("train")
    wait_until_running(page)
    return page.url


def open_shell(page: Page) -> None:
    page.get_by_role("link", name="Terminal", exact=True).click()
    page.get_by_role("button", name="Open terminal").click()
    expect(page.get_by_role("status").filter(has_text="Connected to worker-0.")).to_be_visible(timeout=SLOW)
    page.keyboard.type("ls\n")
    expect(page.locator(".xterm-rows")).to_contain_text("sweep.yaml", timeout=SLOW)
    page.keyboard.type("exit\n")
    expect(page.locator("#terminal-status")).to_have_text("The shell exited with code 0.")


def watch_metric(page: Page) -> None:
    """Check that the chart appears and grows without a reload."""
    page.get_by_role("link", name="Metrics", exact=True).click()
    row = page.get_by_role("row", name=re.compile("^loss"))
    expect(row).to_be_visible(timeout=SLOW)
    expect(row).not_to_have_text(row.inner_text(), timeout=SLOW)


def submit_urgent(page: Page, train: str) -> str:
    """Edit a copy of the workload with its code, and read why the copy is pending."""
    page.goto(train)
    page.get_by_role("link", name="Edit a copy of the workload").click()
    page.get_by_label("Name", exact=True).fill("urgent")
    page.get_by_label("Command", exact=True).fill("python train.py 10 0")
    page.get_by_label("Replicas", exact=True).fill("1")
    page.get_by_label("GPUs per pod").fill("1")
    expect(page.get_by_role("heading", name="Would be queued")).to_be_visible(timeout=SLOW)
    expect(page.locator("#w-code")).to_contain_text("3 files")
    page.get_by_role("button", name="Submit workload", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("urgent")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Pending")
    expect(page.get_by_role("region", name="Pending reason")).to_be_visible(timeout=SLOW)
    return page.url


def raise_priority(page: Page) -> None:
    page.get_by_role("link", name="Edit workload").click()
    page.get_by_label("Priority").select_option("medium")
    expect(page.get_by_role("region", name="Changes")).to_contain_text("Priority", timeout=SLOW)
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Completed", timeout=2 * SLOW)


def check_that_train_was_preempted_and_resumed(page: Page, train: str) -> None:
    """Check that the timeline shows the signal and the preemption, and that the logs show the saved step."""
    page.goto(train)
    wait_until_running(page)
    page.get_by_role("navigation", name="Workload", exact=True).get_by_role("link", name="Timeline").click()
    expect(page.get_by_role("main")).to_contain_text("SIGUSR1 sent to 4 pods")
    expect(page.get_by_role("main")).to_contain_text("urgent")
    page.get_by_role("link", name="Logs", exact=True).click()
    expect(page.get_by_role("log")).to_contain_text(re.compile(r"starting at step [1-9]"), timeout=SLOW)
    resumed = re.findall(r"starting at step (\d+)", page.get_by_role("log").inner_text())
    page.get_by_label("Pod and run").select_option(label="worker-0, run 1 (ended)")
    expect(page.get_by_role("log")).to_contain_text(f"saved step {resumed[0]}", timeout=SLOW)
    page.get_by_role("link", name="Cancel workload").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel workload").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Cancelled", timeout=SLOW)


def run_array(page: Page, checkout: Path) -> str:
    """Run an array whose files the project already has, so that they are not stored again."""
    page.goto("/submit")
    page.locator("#document").fill(SWEEP)
    expect(page.get_by_label("Name", exact=True)).to_have_value("sweep")
    page.locator("#code-directory").set_input_files(str(checkout))
    page.get_by_role("button", name="Send 3 files").click()
    expect(page.get_by_text("The project already has all files.")).to_be_visible(timeout=SLOW)
    expect(page.locator("#w-code")).to_contain_text("3 files")
    page.get_by_role("button", name="Submit workload", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("sweep")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Completed", timeout=4 * SLOW)
    return page.url


def download_best_model(page: Page, place: Path) -> None:
    best = re.compile("sweep-(9|10|11)")  # the tasks with the highest learning rate; metrics follow the tasks
    expect(page.get_by_text("Best task:")).to_contain_text(best, timeout=SLOW)
    page.get_by_role("link", name="Show outputs").click()
    expect(page.get_by_role("heading", name="Files of worker-0")).to_be_visible(timeout=SLOW)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download results/weight.txt").click()
    download.value.save_as(place / "weight.txt")
    assert float((place / "weight.txt").read_text()) == pytest.approx(3, abs=1e-4)


def clean_up(page: Page, train: str, urgent: str, array: str) -> None:
    for address, kind in ((train, "workload"), (urgent, "workload"), (array, "array")):
        page.goto(address)
        page.get_by_role("link", name=f"Delete {kind}").click()
        page.get_by_role("dialog").get_by_role("button", name=re.compile("Delete")).click()
        expect(page.get_by_role("heading", level=1, name="Workloads")).to_be_visible()
