"""Browser tests for logs on the workload page: follow, search and download."""

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from pools.runtimes.pod_dir import PodDir
from projects.models import Pod, Workload
from tests import factories as make
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import NARROW
from tests.support.present import present

# The number that the style sheet shows beside the match: the first line's number plus the lines above it.
NUMBER_OF_HIT = """() => {
    const lines = [...document.querySelectorAll("#log .l")];
    const start = Number(document.querySelector("#log pre").style.counterReset.split(" ")[1]);
    return start + 1 + lines.findIndex((line) => line.classList.contains("hit"));
}"""
MARKUP = "<img src=x onerror=alert(1)> <b>bold</b>"


@pytest.fixture
def pods(scene: Scene, home: Path) -> list[Pod]:
    workload = scene.workloads["diffusion-xl"]
    scene.pools["train"].runtime = "local"
    scene.pools["train"].save()
    rows = list(workload.pods.order_by("rank"))
    for pod in rows:
        shutil.rmtree(home / "run" / "pods" / str(pod.pk), ignore_errors=True)
        PodDir(home / "run" / "pods" / str(pod.pk)).create()
    return rows


def write(home: Path, pod: Pod, text: str) -> None:
    with PodDir(home / "run" / "pods" / str(pod.pk)).log.open("a") as log:
        log.write(text)


def open_view(page: Page) -> None:
    """Open the menu with the log's timestamps, wrapping, full screen and download."""
    page.locator("#log-view > summary").click()


def log_text(page: Page) -> str:
    return page.locator("#log pre").inner_text()


@pytest.mark.heavy
def test_link_to_a_log_line_opens_the_log_at_that_line(opened: Open, pods: list[Pod], home: Path) -> None:
    lines = [f"\x1b[32mstep {number}\x1b[0m äöü {'x' * 80}\n" for number in range(1, 3001)]
    write(home, pods[1], "".join(lines))
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[1].workload_id}/logs")
        page.get_by_label("Pod and run").select_option(str(pods[1].pk))
        line = page.locator("#log .l", has_text="step 2990 ")
        expect(line).to_be_visible()
        line.click(position={"x": -30, "y": 5}, force=True)
        offset = len("".join(lines[:2989]).encode())
        address = f"{page.url.partition('#')[0]}#pod={pods[1].pk}&line=2990&at={offset}"
        expect(page).to_have_url(address)
        page.goto("/workloads")
        page.goto(address)
        expect(page.locator("#log .hit")).to_contain_text("step 2990 ")
        assert page.evaluate(NUMBER_OF_HIT) == 2990
        assert not page.get_by_label("Follow").is_checked()
        assert faults == []


def test_new_log_lines_appear_as_they_are_written(opened: Open, pods: list[Pod], home: Path) -> None:
    write(home, pods[0], f"\x1b[31mfirst\x1b[0m {MARKUP}\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        log = page.locator("#log pre")
        expect(log).to_contain_text(f"first {MARKUP}")
        for number in range(3):
            write(home, pods[0], f"step {number} \x1b[2J\x08\n")
            expect(log).to_contain_text(f"step {number} ")
        assert page.locator("#log img, #log b").count() == 0
        assert not {"\x1b", "\x08"} & set(log_text(page))
        page.get_by_label("Follow").uncheck()
        newer = page.get_by_role("button", name="Load newer output")
        expect(newer).to_be_hidden()
        write(home, pods[0], "unseen\n")
        newer.click()
        expect(log).to_contain_text("unseen")
        assert faults == []


@pytest.mark.heavy
def test_log_is_polled_if_the_websocket_is_unavailable(opened: Open, pods: list[Pod], home: Path) -> None:
    write(home, pods[0], "first\n")
    with opened("dave") as (page, _):
        page.route_web_socket("**/ws/workloads/**", lambda socket: socket.close())
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        expect(page.locator("#log pre")).to_contain_text("first")
        write(home, pods[0], "second\n")
        expect(page.locator("#log pre")).to_contain_text("second")


def test_log_search_covers_the_whole_log_and_shows_matches_in_context(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    # A page loads a certain number of bytes, and few long lines are checked faster than many short ones.
    lines = [f"line {number} of an epoch {'x' * 200}" for number in range(4000)]
    lines[5] = f"loss is nan {MARKUP}"
    lines[2000] = "Loss is inf"
    write(home, pods[1], "\n".join(lines) + "\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        page.get_by_label("Pod and run").select_option(label="worker-1")
        expect(page.locator("#log pre")).to_contain_text("line 3999 ")
        assert "line 2001 " not in log_text(page), "the log opens at its end"
        page.get_by_label("Search the log").fill("loss is")
        page.keyboard.press("Enter")
        expect(page.locator("#log-count")).to_contain_text("2 matching lines in worker-1, run 1: loss is")
        expect(page.locator("#log-place")).to_have_text("1 of 2 matching lines")
        expect(page.locator("#log .hit")).to_contain_text(MARKUP)
        page.get_by_role("button", name="Next match").click()
        expect(page.locator("#log-place")).to_have_text("2 of 2 matching lines")
        expect(page.locator("#log .hit")).to_have_text("Loss is inf\n")
        expect(page.locator("#log .l mark")).to_have_text(["Loss is"])
        page.get_by_label("Search the log").press("Enter")
        expect(page.locator("#log-place")).to_have_text("1 of 2 matching lines")
        page.locator(".log-all > summary").click()
        hits = page.locator(".log-hits li")
        expect(hits.first).to_contain_text(MARKUP)
        assert hits.locator("img, b").count() == 0
        assert hits.nth(1).locator(".number").all_inner_texts() == ["2001"]
        button, match = (
            hits.nth(1).locator("button").bounding_box(),
            hits.nth(1).locator("mark").bounding_box(),
        )
        assert button and match and button["y"] <= match["y"] < button["y"] + button["height"]
        shown = page.locator(".log-list").bounding_box()
        assert shown and shown["height"] <= 0.4 * page.evaluate("innerHeight") + 1
        assert accessibility_faults(page) == []
        page.evaluate("getSelection().selectAllChildren(document.querySelector('.log-hits pre'))")
        page.get_by_role("button", name="Show line 2001 in the log").press("Enter")
        expect(page.locator("#log pre")).to_contain_text("Loss is inf\nline 2001 ")
        expect(page.locator("#log pre")).to_contain_text(f"{lines[1999]}\nLoss is inf")
        assert page.evaluate(NUMBER_OF_HIT) == 2001
        page.get_by_role("button", name="Load older output").click()
        expect(page.locator("#log pre")).to_contain_text("line 1800 of")
        assert page.evaluate(NUMBER_OF_HIT) == 2001, "lines keep their numbers"
        open_view(page)
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        assert download.value.suggested_filename == "diffusion-xl-worker-1-run1.log"
        assert Path(download.value.path()).read_text().splitlines() == lines
        assert faults == []


@pytest.mark.heavy
def test_failed_workload_shows_the_last_error_of_the_pod_that_failed_first(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    write(home, pods[3], "loading\nRuntimeError: no CUDA device\nbye\n")
    pods[0].workload.pods.update(state="stopped", ended_at=make.ago(minutes=1))
    Pod.objects.filter(pk=pods[3].pk).update(state="failed", exit_code=1, ended_at=make.ago(minutes=2))
    Workload.objects.filter(pk=pods[0].workload_id).update(
        phase="failed", message="Pod worker-3 ended with exit code 1.", ended_at=make.ago(minutes=1)
    )
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}")
        title = "Pod worker-3 ended with exit code 1 on train-0"
        expect(page.get_by_role("heading", name=title)).to_be_visible()
        expect(page.locator("#failure-line")).to_have_text("RuntimeError: no CUDA device")
        expect(page.locator("#log .error")).to_have_text("RuntimeError: no CUDA device\n")
        expect(page.get_by_label("Follow")).to_be_hidden()
        assert accessibility_faults(page) == []
        facts = page.locator(".head-facts").inner_text()
        page.get_by_role("link", name="Line 2 of worker-3").click()
        expect(page.locator("#log .hit")).to_have_text("RuntimeError: no CUDA device\n")
        expect(page.locator("#log-error-link")).to_have_count(0)
        assert page.locator(".head-facts").inner_text() == facts, "the head is the same"
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        expect(page.get_by_label("Pod and run")).to_have_value(str(pods[3].pk))
        expect(page.locator("#log pre")).to_contain_text("bye")
        page.goto("/")
        item = page.locator(".attention li", has_text="diffusion-xl")
        expect(item.locator("code")).to_have_text("RuntimeError: no CUDA device")
        assert accessibility_faults(page) == []
        assert faults == []


@pytest.mark.heavy
def test_log_is_searched_while_typing_and_escape_removes_the_matches(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    write(home, pods[0], "step 1\nloss is nan\nstep 2\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}")
        page.get_by_role("link", name="Search log").click()
        expect(page.get_by_label("Search the log")).to_be_focused()
        page.get_by_role("button", name="Full screen").click()
        page.get_by_label("Search the log").focus()
        field, close = (
            page.get_by_label("Search the log"),
            page.get_by_role("button", name="Exit full screen"),
        )
        expect(field).to_be_focused()
        expect(close).to_be_visible()
        page.keyboard.type("step")
        expect(page.locator("#log-place")).to_have_text("1 of 2 matching lines")
        page.keyboard.type(" 2")
        expect(page.locator("#log-place")).to_have_text("1 of 1 matching line")
        expect(page.locator("#log .hit")).to_have_text("step 2\n")
        page.keyboard.press("Escape")
        expect(field).to_have_value("")
        expect(page.locator("#log-place, #log mark, #log .hit")).to_have_count(0)
        expect(close).to_be_visible()
        page.keyboard.press("Escape")
        expect(close).to_be_hidden()
        assert faults == []


@pytest.mark.heavy
def test_log_fills_the_screen_until_escape_is_pressed(opened: Open, pods: list[Pod], home: Path) -> None:
    write(home, pods[0], "first\n" + "step\n" * 100)
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        expect(page.locator("#log pre")).to_contain_text("first")
        page.get_by_role("button", name="Full screen").click()
        box = page.locator("#log-card").bounding_box()
        assert box and (box["x"], box["y"], box["width"]) == (0, 0, 1440)
        assert accessibility_faults(page) == []
        log = page.locator("#log").bounding_box()
        assert log and abs(log["y"] + log["height"] - 900) <= 1, "the log reaches the end of the window"
        close = page.get_by_role("button", name="Exit full screen")
        expect(close).to_be_focused()
        close.click()
        expect(close).to_be_hidden()
        expect(page.get_by_role("button", name="Full screen")).to_be_focused()
        page.get_by_role("button", name="Full screen").click()
        expect(close).to_be_visible()
        page.keyboard.press("Escape")
        expect(close).to_be_hidden()
        assert faults == []


@pytest.mark.heavy
def test_log_toolbar_takes_one_row_in_full_screen_on_a_phone(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    write(home, pods[0], "step\nRuntimeError: no CUDA device\n")
    with opened("dave", viewport=NARROW, has_touch=True) as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        view = page.locator("#log-view > summary")
        view.tap()
        page.locator("#log-menu-full").tap()
        close = page.get_by_role("button", name="Exit full screen")
        assert present(close.bounding_box())["y"] == present(page.locator("#log-pod").bounding_box())["y"]
        error, log = page.locator("#log .error").bounding_box(), page.locator("#log pre").bounding_box()
        assert error and log and error["width"] > 0.8 * log["width"], "errors are marked over the whole line"
        close.tap()
        expect(close).to_be_hidden()
        assert faults == []


@pytest.mark.heavy
def test_log_toolbar_does_not_move_during_a_search(opened: Open, pods: list[Pod], home: Path) -> None:
    write(home, pods[0], "loss 1\nloss 2\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        expect(page.locator("#log pre")).to_contain_text("loss 2")
        tools = [page.locator(each) for each in ("#log-text", "#log-scope", "#log-errors", "#log-view")]
        before = [tool.bounding_box() for tool in tools]
        for text, answer in (("loss", "1 of 2 matching lines"), ("nothing", "No matches")):
            page.get_by_label("Search the log").fill(text)
            expect(page.locator("#log-card .log-nav")).to_contain_text(answer)
            assert [tool.bounding_box() for tool in tools] == before
        assert faults == []


@pytest.mark.heavy
def test_log_tools_and_the_search_result_fit_in_one_row_on_a_laptop(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    write(home, pods[0], "loss 1\nloss 2\n")
    write(home, pods[3], "loss 1\n" * 40)
    with opened("dave", viewport={"width": 1440, "height": 900}) as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        page.get_by_label("Search the log").fill("nothing")
        answer = page.locator("#log-count")
        expect(answer).to_contain_text("No matches in worker-0")
        assert answer.evaluate("element => element.scrollWidth <= element.clientWidth")
        page.get_by_label("Search the log").fill("loss")
        page.get_by_label("Search all pods").check()
        expect(page.locator("#log-place")).to_have_text("1 of 42 matching lines · worker-0")
        view, full = (page.locator(each).bounding_box() for each in ("#log-view", "#log-full"))
        assert view and full and full["x"] > view["x"] and full["y"] == view["y"]
        assert faults == []


def test_followed_log_stays_at_its_end_when_the_window_becomes_smaller(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    write(home, pods[0], "".join(f"step {number}\n" for number in range(200)))
    with opened("dave", viewport={"width": 390, "height": 844}) as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        expect(page.locator("#log pre")).to_contain_text("step 199")
        page.set_viewport_size({"width": 390, "height": 740})
        page.wait_for_function("""() => {
          const log = document.getElementById("log");
          return log.scrollTop > 0 && log.scrollHeight - log.clientHeight - log.scrollTop < 1;
        }""")
        assert faults == []


# Lines and styles of a text that is cut in two, at each position, and of the whole text.
CUT_TEXT = """(text) => {
    const read = (...pieces) => {
        const reader = new window.berthLog.LogReader(), lines = new Set();
        const isLast = (place) => place === pieces.length - 1;
        pieces.forEach((part, place) => reader.read(part, isLast(place)).forEach((line) => lines.add(line)));
        return JSON.stringify([...lines].map(({ runs, ended }) => [runs, ended]));
    };
    const cuts = [...text].map((_, at) => read(text.slice(0, at), text.slice(at)));
    return { whole: JSON.parse(read(text)), versions: [...new Set([...cuts, read(...text), read(text)])] };
}"""


@pytest.mark.heavy
def test_progress_bar_updates_replace_their_line(opened: Open, pods: list[Pod], home: Path) -> None:
    write(home, pods[0], "start\r\n 1% \r 2% ")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        lines = page.locator("#log .l")
        expect(lines).to_have_text(["start", " 2% "])
        write(home, pods[0], "\r 3% ")
        expect(lines).to_have_text(["start", " 3% "])
        write(home, pods[0], f"\r 4% \n\x1b[1;31m{MARKUP}\x1b[0m end")
        expect(lines).to_have_text(["start", " 4% ", f"{MARKUP} end"])
        expect(page.locator("#log .ansi-bold.ansi-1")).to_have_text(MARKUP)
        page.reload()
        expect(lines).to_have_text(["start", " 4% ", f"{MARKUP} end"])
        text = "a\r\nb\r\x1b[31mred\x1b[38;5;2mgreen\x1b]0;title\x07\x1b[m\n\r\x1b[2Kc\x1b[1m\x08d\r\r\nend\r"
        result = page.evaluate(CUT_TEXT, text)
        assert len(result["versions"]) == 1, "lines are the same however the text is cut"
        assert result["whole"] == [
            [[["a", ""]], True],
            [[["red", "ansi-1"], ["green", "ansi-2"]], True],
            [[["c", ""], ["\ufffdd", "ansi-bold "]], True],
            [[["end", "ansi-bold "]], False],
        ]
        assert faults == []
