"""Browser tests for uploading code with the submission form."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from berth.client.code import scan
from berth.core.spec.sections.code import CHUNK_BYTES
from projects.models import CodeChunk, CodeTree
from tests.browser.conftest import Open
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import NARROW
from tests.browser.every_page.pages import OVERFLOW
from tests.harness.samples import sample

MIB = 2**20
GIT_RULES = {
    ".gitignore": "*.log\n!kept.log\n/build/\ndata/*\n!data/small.csv\n**/deep/*.tmp\n"
    "space\\ name\n[ab]?.txt\n",
    ".berthignore": "secret/\n!secret/public.txt\n*.bin\n",
    "train.py": "print(1)\n", "run.sh": "#!/bin/sh\n", "out.log": "", "kept.log": "", "build/x": "",
    "src/build/y.py": "", "data/big.csv": "", "data/small.csv": "1\n", "a/deep/x.tmp": "", "a/deep/x.py": "",
    "space name": "", "a1.txt": "", "c1.txt": "", "secret/key": "k", "secret/public.txt": "p",
    "model.bin": "",
    "sub/.gitignore": "*\n!.gitignore\n!keep.me\n", "sub/lost": "", "sub/keep.me": "",
    "tracked.log": "tracked although ignored", "excluded-by-info": "", "ünï çode.py": "", "link-target": "",
}  # fmt: skip


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=d", "-c", "user.email=d@example.org")
    subprocess.run(["git", *identity, "-C", str(root), *arguments], check=True, capture_output=True)


def listed(root: Path) -> list[dict[str, Any]]:
    entries = scan(root, size_max=100 * MIB, files_max=1000).entries
    return [{name: value for name, value in entry.items() if value} for entry in entries]


def choose(page: Page, root: Path) -> None:
    page.locator("#code-directory").set_input_files(str(root))
    expect(page.get_by_role("button", name="Upload ")).to_be_focused(timeout=60_000)


def send(page: Page) -> None:
    page.get_by_role("button", name="Upload ").click()
    expect(page.locator("#w-code").get_by_text("Tree")).to_be_visible()


@pytest.fixture
def form(opened: Open) -> Iterator[Page]:
    with opened("dave") as (page, faults):
        page.goto("/submit?kind=single&project=vision")
        yield page
        assert faults == []


@pytest.mark.heavy
@pytest.mark.parametrize("index", sample(["2", "4"]))
def test_browser_uploads_the_same_files_as_the_command_line(form: Page, tmp_path: Path, index: str) -> None:
    root = tmp_path / "line"
    write(root, GIT_RULES)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-f", "tracked.log", "train.py", "run.sh", "sub/keep.me", "a", "data/small.csv")
    git(root, "update-index", "--index-version", index, "--chmod=+x", "run.sh")
    (root / "run.sh").chmod(0o755)
    (root / ".git" / "info" / "exclude").write_text("excluded-by-info\n")
    write(root, {"nested/lib.py": "1", "nested/lib.log": "2"})
    git(root / "nested", "init", "-q")
    choose(form, root)
    send(form)
    assert CodeTree.objects.get().files == listed(root)
    assert f"code:\n  tree: {CodeTree.objects.get().digest}\n" in form.locator("#document").input_value()


@pytest.mark.heavy
def test_upload_of_a_directory_without_git_follows_its_ignore_files(form: Page, tmp_path: Path) -> None:
    write(tmp_path / "plain", GIT_RULES)
    choose(form, tmp_path / "plain")
    send(form)
    stored = CodeTree.objects.get().files
    scripts = [entry.pop("path") for entry in stored if entry.pop("executable", False)]
    assert scripts == ["run.sh"], "browsers do not show permissions, so scripts are executable"


@pytest.mark.heavy
def test_second_upload_contains_only_changed_files(form: Page, tmp_path: Path) -> None:
    root = tmp_path / "line"
    write(root, {"train.py": "print(1)\n", "data.csv": "1,2\n" * 1000})
    choose(form, root)
    expect(form.locator("#code-summary")).to_have_text("2 files, 3.9 KiB in line.")
    send(form)
    expect(form.get_by_role("status").filter(has_text="Uploaded 3.9 KiB.")).to_be_visible()
    (root / "train.py").write_text("print(2)\n")
    choose(form, root)
    send(form)
    expect(form.get_by_role("status").filter(has_text="Uploaded 9 bytes.")).to_be_visible()
    choose(form, root)
    send(form)
    expect(form.get_by_role("status").filter(has_text="already has all files")).to_be_visible()


@pytest.mark.heavy
def test_interrupted_upload_resumes(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "line").mkdir()
    (tmp_path / "line" / "weights.bin").write_bytes(os.urandom(3 * CHUNK_BYTES + 5))
    requests: list[int] = []

    def interrupt(route: Route) -> None:
        requests.append(len(route.request.post_data_buffer or b""))
        if len(requests) == 2:
            route.fulfill(status=403, json={"detail": "Your role was revoked."})
        else:
            route.continue_()

    with opened("dave") as (page, _):
        page.goto("/submit?kind=single&project=vision")
        page.route("**/code/chunks", interrupt)
        choose(page, tmp_path / "line")
        page.get_by_role("button", name="Upload 1 file").click()
        expect(
            page.get_by_role("alert").filter(has_text="Your role was revoked. The uploaded parts are kept")
        ).to_be_visible()
        assert CodeChunk.objects.count() == 2
        page.get_by_role("button", name="Resume upload").click()
        expect(page.locator("#w-code").get_by_text("1 file, 12.0")).to_be_visible()
        assert len(requests) == 3
    assert CodeTree.objects.get().files == listed(tmp_path / "line")


@pytest.mark.heavy
def test_code_upload_can_be_cancelled_and_discarded(form: Page, tmp_path: Path) -> None:
    write(tmp_path / "line", {"train.py": "print(1)\n"})
    form.route("**/code/chunks", lambda route: None)  # these requests are never answered
    choose(form, tmp_path / "line")
    form.get_by_role("button", name="Upload 1 file").click()
    form.get_by_role("button", name="Cancel upload").click()
    expect(form.get_by_role("status").filter(has_text="Upload cancelled.")).to_be_visible()
    form.unroute("**/code/chunks")
    form.get_by_role("button", name="Submit workload", exact=True).click()
    expect(form.get_by_text("Upload the selected files first, or discard the selection.")).to_be_visible()
    expect(form.get_by_role("button", name="Resume upload")).to_be_focused()
    form.get_by_role("button", name="Discard selection").click()
    expect(form.locator("#code-selection")).to_be_hidden()
    assert not CodeTree.objects.exists()


@pytest.mark.heavy
def test_page_without_the_web_crypto_api_uploads_the_same_chunks(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "line").mkdir()
    (tmp_path / "line" / "weights.bin").write_bytes(os.urandom(CHUNK_BYTES + 5))
    with opened("dave") as (page, faults):
        page.add_init_script("Object.defineProperty(Crypto.prototype, 'subtle', { value: undefined })")
        page.goto("/submit?kind=single&project=vision")
        assert page.evaluate("crypto.subtle === undefined")
        choose(page, tmp_path / "line")
        send(page)
        assert faults == []
    assert CodeTree.objects.get().files == listed(tmp_path / "line")


@pytest.mark.heavy
def test_selected_files_survive_other_edits_of_the_form(form: Page, tmp_path: Path) -> None:
    write(tmp_path / "line", {"train.py": "print(1)\n"})
    choose(form, tmp_path / "line")
    form.get_by_role("button", name="Add role").click()
    expect(form.get_by_role("heading", name="Role role-2")).to_be_visible()
    expect(form.locator("#code-summary")).to_have_text("1 file, 9 bytes in line.")
    send(form)
    expect(form.get_by_role("radio", name="Files from this computer")).to_be_checked()
    form.get_by_role("button", name="Remove code").click()
    expect(form.locator("#w-code")).to_contain_text("Pods start in an empty directory")
    assert "code:" not in form.locator("#document").input_value()


@pytest.mark.heavy
def test_selecting_no_code_removes_the_files_from_the_document(form: Page, tmp_path: Path) -> None:
    write(tmp_path / "line", {"train.py": "print(1)\n"})
    choose(form, tmp_path / "line")
    send(form)
    form.get_by_role("radio", name="Git repository").check()
    expect(form.get_by_text("The document uses uploaded files. Remove them to use a Git")).to_be_visible()
    form.get_by_role("radio", name="No code").check()
    expect(form.get_by_text("Pods start in an empty directory")).to_be_visible()
    expect(form.get_by_role("button", name="Select directory")).to_be_hidden()
    assert "code:" not in form.locator("#document").input_value()


DROP = """(target, names) => {
  const transfer = new DataTransfer();
  for (const name of names) transfer.items.add(new File([name], name));
  for (const kind of ["dragover", "drop"]) {
    target.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }
}"""


@pytest.mark.heavy
def test_individual_files_can_be_selected_or_dragged_into_the_form(form: Page, tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "1", "b.py": "2"})
    form.locator("#code-files").set_input_files([tmp_path / "a.py", tmp_path / "b.py"])
    expect(form.locator("#code-summary")).to_have_text("2 files, 2 bytes.")
    send(form)
    assert [entry["path"] for entry in CodeTree.objects.get().files] == ["a.py", "b.py"]
    form.locator("#code-drop").evaluate(DROP, ["dropped.py"])
    expect(form.locator("#code-summary")).to_have_text("1 file, 10 bytes.")


@pytest.mark.heavy
def test_files_that_cannot_be_uploaded_are_rejected_before_the_upload(form: Page, tmp_path: Path) -> None:
    requests: list[str] = []
    form.on("request", lambda request: requests.append(request.url) if request.method == "PUT" else None)
    (tmp_path / "large").mkdir()
    with (tmp_path / "large" / "huge.bin").open("wb") as file:
        file.truncate(2 * 2**30)
    error = form.locator("#code-error")
    form.locator("#code-directory").set_input_files(str(tmp_path / "large"))
    expect(error).to_contain_text("The files take 2048.0 MiB, but at most 256.0 MiB can be uploaded.")
    expect(error).to_contain_text("Largest files: huge.bin (2048.0 MiB).")
    expect(form.get_by_role("button", name="Upload ")).to_be_hidden()
    write(tmp_path / "home", {".ssh/id": "key"})
    form.locator("#code-directory").set_input_files(str(tmp_path / "home"))
    expect(error).to_contain_text("This appears to be a home directory.")
    write(tmp_path / "empty", {".gitignore": "*\n"})
    form.locator("#code-directory").set_input_files(str(tmp_path / "empty"))
    expect(error).to_contain_text("There are no files to upload.")
    assert requests == []


@pytest.mark.heavy
def test_code_section_works_with_the_keyboard_and_fits_a_phone_screen(opened: Open, tmp_path: Path) -> None:
    write(tmp_path / "line", {f"a/rather/long/path/to/some/module_{number}.py": "" for number in range(30)})
    with opened("dave", viewport=NARROW) as (page, faults):
        page.goto("/submit?kind=single&project=vision")
        page.get_by_role("radio", name="Files from this computer").check()
        page.on("filechooser", lambda _: None)  # Playwright waits for choosers before the key is pressed
        page.get_by_role("button", name="Select directory").focus()
        with page.expect_file_chooser() as chooser:
            page.keyboard.press("Enter")
        chooser.value.set_files(str(tmp_path / "line"))
        expect(page.get_by_role("button", name="Upload 30 files")).to_be_focused()
        assert accessibility_faults(page) == []
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_text("module_29.py")).to_be_visible()
        assert page.evaluate(OVERFLOW) <= 0
        page.keyboard.press("Tab")
        page.get_by_role("button", name="Upload 30 files").press("Enter")
        expect(page.locator("#w-code").get_by_text("30 files")).to_be_visible()
        expect(page.get_by_role("button", name="Select directory")).to_be_focused()
        assert accessibility_faults(page) == []
        assert faults == []


@pytest.mark.heavy
def test_tracked_symbolic_links_are_reported_as_skipped(form: Page, tmp_path: Path) -> None:
    root = tmp_path / "line"
    write(tmp_path, {"outside/secret": "s", "line/train.py": "1", "line/src/a.py": "1"})
    for name, target in (("latest", "train.py"), ("code", "src"), ("out", "../outside")):
        (root / name).symlink_to(target)
    git(root, "init", "-q")
    git(root, "add", "latest", "code")
    choose(form, root)
    expect(form.locator("#code-summary")).to_contain_text(
        "browsers cannot read symbolic links: code, latest."
    )
    send(form)
    assert [entry["path"] for entry in CodeTree.objects.get().files] == ["src/a.py", "train.py"]
