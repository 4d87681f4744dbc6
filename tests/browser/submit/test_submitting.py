"""Browser tests for the submission form, its document and its live prediction."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from projects.models import Workload
from tests import factories as make
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import NARROW
from tests.browser.every_page.pages import OVERFLOW

TOP = "element => element.offsetTop"
TEXT_BOTTOM = """(element) => {
  const range = document.createRange();
  const bottom = (part) => { range.selectNodeContents(part); return range.getBoundingClientRect().bottom; };
  return Math.max(...[...element.querySelectorAll("p, a")].map(bottom));
}"""
SELECTED_TEXT = """(box => box.value.slice(box.selectionStart, box.selectionEnd))(document.activeElement)"""

TEXT = """\
# the night's run
name: night-run
project: vision
pools: [train]
command: sleep 1
roles:
  - name: worker     # the ranks
    replicas: 8
    gpu: 1
    node_selector: {disk: fast}
"""


def document(page: Page) -> str:
    return page.locator("#document").input_value()


@pytest.mark.heavy
def test_prediction_is_updated_with_the_form_before_submission(opened: Open, scene: Scene) -> None:
    others = Workload.objects.filter(project=scene.projects["vision"], phase="pending")
    others.update(phase="cancelled", held=False, ended_at=make.ago(minutes=1))
    with opened("dave") as (page, faults):
        page.goto("/submit")
        page.get_by_label("Name", exact=True).fill("from-the-form")
        page.get_by_label("Project", exact=True).select_option("vision")
        page.get_by_label("train", exact=True).check()
        page.get_by_label("Command", exact=True).fill("sleep 1")
        page.get_by_label("Priority").select_option("very-low")
        page.get_by_label("Replicas", exact=True).fill("12")
        expect(page.get_by_role("heading", name="Would be queued")).to_be_visible()
        answer = page.locator("#answer")
        expect(answer).to_contain_text("Project limit")
        expect(answer).to_contain_text("vision would have 24 GPUs, more than its limit of 16.")
        expect(answer.get_by_role("img", name="12 allocated, 12 requested")).to_be_visible()
        spoken = re.compile("Would be queued. Start after ")
        expect(page.get_by_role("status").filter(has_text=spoken)).to_be_attached()
        page.get_by_label("Replicas", exact=True).fill("1")
        page.get_by_label("GPUs per pod").fill("0.25")
        expect(page.get_by_role("heading", name="Would start immediately")).to_be_visible()
        expect(answer).to_contain_text("worker-0 → train-")
        assert "gpu: 0.25             # or a fraction" in document(page), "the comment is still there"
        assert not Workload.objects.filter(name="from-the-form").exists()
        page.get_by_role("button", name="Submit workload", exact=True).click()
        expect(page.get_by_role("heading", name="from-the-form")).to_be_visible()
        made = Workload.objects.get(name="from-the-form")
        assert (made.submitted_by, made.gpu_milli_min) == (scene.people["dave"], 250)
        Workload.objects.filter(pk=made.pk).update(phase="running", message="2 pods run.")
        page.reload()
        expect(page.locator("h1")).to_contain_text("Running")
        assert faults == []


def test_form_and_document_stay_in_sync(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        page.locator("#document").fill(TEXT)
        expect(page.get_by_label("Replicas", exact=True)).to_have_value("8")
        expect(page.get_by_label("Role name")).to_have_value("worker")
        expect(page.get_by_label("Max replicas")).to_have_count(0)
        page.get_by_label("Kind", exact=True).select_option("elastic")
        page.get_by_label("Max replicas").fill("12")
        page.get_by_label("GPUs per pod").fill("0.5")
        elastic = TEXT.replace("pools: [train]\n", "pools: [train]\nkind: elastic\n")
        expected = elastic.replace("    replicas: 8\n", "    min: 8\n    max: 12\n").replace(
            "gpu: 1", "gpu: 0.5"
        )
        expect(page.locator("#document")).to_have_value(expected)
        page.get_by_role("button", name="Add role").click()
        expect(page.get_by_role("heading", name="Role role-2")).to_be_visible()
        page.get_by_role("button", name="Remove Role role-2").click()
        expect(page.locator("#document")).to_have_value(expected)
        page.locator("#document").fill(expected + "pools: [\n")
        expect(page.get_by_text("The document is not valid YAML (line")).to_be_visible()
        with page.expect_response(lambda response: response.request.method == "POST"):
            page.get_by_label("Name", exact=True).fill("renamed")
        page.wait_for_function("() => !document.querySelector('.htmx-request')")
        page.locator("#document").fill(expected)
        expect(page.locator("#document")).to_have_value(expected.replace("name: night-run", "name: renamed"))
        assert faults == []


@pytest.mark.heavy
def test_late_responses_do_not_interrupt_typing(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        name = page.get_by_label("Name", exact=True)
        name.fill("")
        for letter in "typed-slowly-and-kept":
            name.press(letter)
            page.wait_for_timeout(45)
        expect(page.locator("#document")).to_have_value(re.compile("name: typed-slowly-and-kept\n"))
        expect(name).to_have_value("typed-slowly-and-kept")
        expect(name).to_be_focused()
        gpus = page.get_by_label("GPUs per pod")
        gpus.fill("0.")
        page.wait_for_timeout(700)
        gpus.press("2")
        gpus.press("5")
        expect(gpus).to_have_value("0.25")
        expect(page.locator("#document")).to_have_value(re.compile(r"gpu: 0\.25 +# or a fraction"))
        box = page.locator("#document")
        box.focus()
        page.keyboard.press("Control+Home")
        page.keyboard.type("# mine\n", delay=60)
        expect(page.get_by_label("Name", exact=True)).to_have_value("typed-slowly-and-kept")
        page.wait_for_timeout(600)
        page.keyboard.type("# more\n")
        assert document(page).startswith("# mine\n# more\nname:")
        assert faults == []


@pytest.mark.heavy
def test_error_links_to_its_field_and_line(opened: Open) -> None:
    with opened("dave") as (page, _):
        page.goto("/submit")
        page.locator("#document").fill(TEXT.replace("gpu: 1", "gpu: 1.5"))
        error = page.locator("#f-roles-0-gpu-error")
        expect(error).to_contain_text("Enter a whole number up to 1024")
        gpus = page.get_by_label("GPUs per pod")
        expect(gpus).to_have_attribute("aria-describedby", "f-roles-0-gpu-error")
        expect(page.locator(".editor-lines .fault")).to_have_text("9")
        assert accessibility_faults(page) == []
        page.get_by_role("link", name="Line 9").click()
        assert page.evaluate(SELECTED_TEXT) == "    gpu: 1.5"
        page.get_by_role("link", name="GPUs per pod").click()
        expect(gpus).to_be_focused()
        page.locator("#document").focus()
        page.get_by_role("button", name="Show 1 error", exact=True).click()
        expect(gpus).to_be_focused()
        gpus.fill("1")
        expect(page.get_by_role("button", name=re.compile("^Submit (workload|anyway)"))).to_be_visible()
        expect(error).to_have_count(0)


@pytest.mark.heavy
def test_editor_highlights_keys_and_comments_while_typing(opened: Open) -> None:
    text = "name: run # a # comment\ncommand: |-\n  echo key: '#'\nroles: [{gpu: 1}]\nenv: {A: 'x # y'}\n"
    with opened("dave") as (page, faults):
        page.goto("/submit")
        page.locator("#document").fill(text)
        layer = page.locator(".editor-colors")
        assert layer.text_content() == text
        keys = ["name", "command", "roles", "gpu", "env", "A"]
        assert layer.locator(".yaml-key").all_text_contents() == keys
        assert layer.locator(".yaml-comment").all_text_contents() == ["# a # comment"]
        page.get_by_label("Name", exact=True).fill("other")
        expect(layer).to_contain_text("name: other")
        background = "box => getComputedStyle(box, '::selection').backgroundColor"
        assert page.locator("#document").evaluate(background) == "rgb(219, 232, 253)", "below dark text"
        assert faults == []


@pytest.mark.heavy
def test_button_next_to_an_invalid_name_fills_in_a_valid_name(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        page.get_by_label("Name", exact=True).fill("My Run")
        page.get_by_role("button", name="Use my-run").click()
        expect(page.locator("#f-name-error")).to_have_count(0)
        expect(page.get_by_label("Name", exact=True)).to_be_focused()
        assert "name: my-run\n" in document(page)
        assert faults == []


@pytest.mark.heavy
def test_form_is_usable_with_the_keyboard_and_on_a_phone(opened: Open) -> None:
    with opened("dave", viewport=NARROW, has_touch=True) as (page, faults):
        page.goto("/submit?kind=single")
        page.get_by_label("Name", exact=True).focus()
        page.keyboard.press("Control+A")
        page.keyboard.type("by-keyboard")
        page.keyboard.press("Enter")  # refreshes the form and submits nothing
        expect(page.locator("#document")).to_have_value(re.compile("name: by-keyboard"))
        assert "/submit" in page.url
        page.keyboard.press("Tab")
        expect(page.get_by_label("Project", exact=True)).to_be_focused()
        for summary in page.locator("#fields section details > summary").all():
            summary.focus()
            page.keyboard.press("Enter")
        assert page.evaluate(OVERFLOW) <= 0
        assert accessibility_faults(page) == []
        assert faults == []


@pytest.mark.heavy
def test_pools_are_ordered_with_the_keyboard(opened: Open) -> None:
    with opened("dave") as (page, faults):
        page.goto("/submit")
        page.locator("#document").fill(TEXT.replace("pools: [train]", "pools: [train, local]"))
        up = page.get_by_role("button", name="Move local up")
        up.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#document")).to_have_value(
            re.compile(r"pools:\s+- local\s+- train|\[local, train\]")
        )
        down = page.get_by_role("button", name="Move local down")
        expect(down).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator(".ranking li").first).to_contain_text("train")
        assert accessibility_faults(page) == []
        assert faults == []


@pytest.mark.heavy
def test_edit_can_be_saved_only_if_it_changes_something(opened: Open, scene: Scene) -> None:
    with opened("ada") as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}/edit")
        save = page.get_by_role("button", name="Save changes")
        expect(save).to_be_disabled()
        expect(page.get_by_role("link", name="Back to workload")).to_be_visible()
        expect(page.get_by_role("heading", name="Stays queued")).to_be_visible()
        document = page.locator("#document")
        text = document.input_value()
        document.fill(f"{text}labels: {{team: robots}}\n")
        expect(page.get_by_text("Queue time unchanged")).to_be_visible()
        expect(save).to_be_enabled()
        expect(page.get_by_role("link", name="Discard changes")).to_be_visible()
        document.fill(text)
        expect(save).to_be_disabled()
        assert faults == []


@pytest.mark.heavy
def test_cards_next_to_the_edit_form_do_not_move_while_a_prediction_loads(opened: Open, scene: Scene) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    with opened("ada") as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}/edit")
        expect(page.locator("#prediction-title")).to_be_visible()
        document = page.locator("#document")
        stored = document.input_value()
        document.fill(f"{stored}labels: {{team: robots}}\n")
        expect(page.get_by_text("Queue time unchanged")).to_be_visible()
        expect(page.locator("#prediction-title")).to_be_visible()
        changes = page.locator("section:has(#changes-title)")
        before = changes.evaluate(TOP)
        page.route("**/edit/prediction", hold)
        document.fill(f"{stored}labels: {{team: planners}}\n")
        expect(changes.get_by_text("planners")).to_be_visible()
        expect(page.get_by_text("Evaluating…")).to_be_visible()
        assert changes.evaluate(TOP) == before
        while not held:
            page.wait_for_timeout(20)
        held[0].continue_()
        expect(page.locator("#prediction-title")).to_be_visible()
        assert changes.evaluate(TOP) == before
        assert faults == []


@pytest.mark.heavy
def test_long_document_stays_in_the_window_next_to_the_form(opened: Open) -> None:
    with opened("dave", viewport={"width": 1440, "height": 900}) as (page, faults):
        page.goto("/submit")
        lines = "\n".join(f"# line {number}" for number in range(80))
        page.locator("#document").fill(f"{TEXT}{lines}\n")
        expect(page.locator("#prediction-title")).to_be_visible()
        page.evaluate("scrollTo(0, 400)")
        card = page.locator("section:has(#doc-title)").bounding_box()
        assert card and card["y"] + card["height"] <= 900 and card["height"] >= 220
        page.locator("#document").press("Control+End")
        assert page.locator("#document").evaluate("box => box.scrollTop") > 0
        # The line numbers follow with the next scroll event.
        page.wait_for_function(
            "scrolled => document.querySelector('.editor-lines').scrollTop === scrolled",
            arg=page.locator("#document").evaluate("box => box.scrollTop"),
        )
        assert faults == []


@pytest.mark.heavy
@pytest.mark.parametrize("width", [1024, 1440])
def test_verdict_stays_visible_when_the_document_is_expanded_with_the_keyboard(
    opened: Open, scene: Scene, width: int
) -> None:
    with opened("ada", viewport={"width": width, "height": 900}) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}/edit")
        change, details = page.locator("#smallest-change"), page.locator("#verdict-details")
        expect(change).to_be_visible()
        document = page.locator("#document")
        document.fill(document.input_value() + "# comment\n" * 20)
        expect(page.get_by_role("heading", name="Stays queued")).to_be_visible()
        before = document.evaluate("box => box.clientHeight")
        page.get_by_role("button", name="Expand document").press("Enter")
        expect(document).to_be_focused()
        collapse = page.get_by_role("button", name="Collapse document", expanded=True)
        expect(collapse.locator("svg").first).to_be_hidden()
        expect(collapse.locator("svg").last).to_be_visible()
        expect(details).to_be_hidden()
        expect(change).to_be_hidden()
        expect(page.get_by_role("heading", name="Stays queued")).to_be_visible()
        expect(page.get_by_label("Command", exact=True)).to_be_hidden()
        assert document.evaluate("box => box.clientHeight") > before + 150
        assert document.evaluate("box => box.clientWidth") > width / 2
        assert accessibility_faults(page) == []
        document.press("Shift+Tab")
        page.keyboard.press("Enter")
        expect(details).to_be_visible()
        expect(change).to_be_visible()
        expect(page.get_by_role("button", name="Expand document")).to_be_focused()
        expect(page.get_by_label("Command", exact=True)).to_be_visible()
        assert faults == []


@pytest.mark.heavy
@pytest.mark.parametrize(("width", "height"), [(1440, 600), (1024, 900)])
def test_verdict_of_an_edit_stays_visible_at_the_end_of_the_page(
    opened: Open, scene: Scene, width: int, height: int
) -> None:
    with opened("ada", viewport={"width": width, "height": height}) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}/edit")
        expect(page.locator("#smallest-change")).to_be_visible()
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        head = page.locator("#submit-form > .page-head").bounding_box()
        verdict = page.locator("section.verdict").bounding_box()
        assert head and verdict and verdict["y"] >= head["y"] + head["height"]
        page.locator(".submit > .stack").last.evaluate("column => column.scrollTo(0, column.scrollHeight)")
        card = page.locator("section:has(#doc-title)").bounding_box()
        assert card and card["y"] + card["height"] <= height
        assert faults == []


@pytest.mark.heavy
def test_submission_form_begins_on_the_first_screen_of_a_phone(opened: Open, scene: Scene) -> None:
    with opened("ada", viewport={"width": 390, "height": 844}, has_touch=True) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}/edit")
        expect(page.get_by_role("heading", name="Stays queued")).to_be_visible()
        first = page.locator("#fields section").first.bounding_box()
        bar, verdict = page.locator(".form-bar").bounding_box(), page.locator(".verdict-bar").bounding_box()
        assert first and bar and verdict
        assert first["y"] < 844 / 2
        expect(page.locator("#verdict")).to_contain_text("Stays queued. Start about ")
        assert verdict["y"] + verdict["height"] == 844, "nothing shows between the verdict and the buttons"
        assert page.locator(".verdict-bar").evaluate(TEXT_BOTTOM) <= bar["y"] + 1
        page.locator("#document").fill(f"{page.locator('#document').input_value()}labels: {{a: b}}\n")
        expect(page.get_by_role("heading", name="Changes", exact=True)).to_be_visible()
        expect(page.locator("#verdict")).to_contain_text("Stays queued. Start about ")
        assert page.locator(".verdict-bar").bounding_box() == verdict, "changes need no third line"
        assert accessibility_faults(page) == []
        assert faults == []


def test_long_document_lines_fade_out_until_they_are_scrolled_to_the_end(opened: Open) -> None:
    with opened("dave", viewport=NARROW, has_touch=True) as (page, faults):
        page.goto("/submit?kind=single")
        colors = page.locator(".editor-colors")
        document = page.locator("#document")
        document.fill(f"name: short\n# {'long ' * 40}\n")
        expect(colors).to_have_class(re.compile("overflows"))
        document.evaluate("box => box.scrollTo(box.scrollWidth, 0)")
        expect(colors).not_to_have_class(re.compile("overflows"))
        assert faults == []


@pytest.mark.heavy
@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_fields_fill_each_row_of_the_form(opened: Open, width: int) -> None:
    gaps = """grids => grids.filter(grid => grid.checkVisibility()).map(grid => {
      const ends = new Map();
      for (const each of grid.querySelectorAll(":scope > .field:not([hidden])")) {
        const {top, right} = each.getBoundingClientRect();
        ends.set(top, Math.max(ends.get(top) ?? 0, right));
      }
      return Math.round(Math.max(...[...ends.values()].map(end => grid.getBoundingClientRect().right - end)));
    })"""
    with opened("dave", viewport={"width": width, "height": 900}) as (page, faults):
        for kind in ("train", "elastic", "service"):
            page.goto(f"/submit?kind={kind}")
            page.locator("#fields details").evaluate_all("all => all.forEach(each => { each.open = true; })")
            unfilled = page.locator("#fields .fields").evaluate_all(gaps)
            assert unfilled, kind
            assert max(unfilled) == 0, f"pixels beside the rows of each section of {kind}: {unfilled}"
        assert faults == []
