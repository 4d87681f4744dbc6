"""Tests for selecting the files that the client sends from a directory."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from berth.client.code import CodeTree, format_size, scan
from berth.core.frames import unpack_frames
from berth.core.spec import SpecError
from berth.core.spec.sections.code import CHUNK_BYTES

MIB = 2**20


def read(root: Path, *, size: int = 100 * MIB, files: int = 1000) -> CodeTree:
    return scan(root, size_max=size, files_max=files)


def paths(root: Path) -> list[str]:
    return [entry["path"] for entry in read(root).entries]


def rejection(root: Path, **limits: int) -> str:
    with pytest.raises(SpecError) as caught:
        read(root, **limits)
    return str(caught.value)


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=d", "-c", "user.email=d@example.org", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *identity, "-C", str(root), *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / "sub").mkdir(parents=True)
    (root / ".gitignore").write_text("*.log\n")
    (root / "sub" / ".gitignore").write_text("cache/\n")
    (root / "train.py").write_text("print(1)\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Start")
    return root


def test_tracked_and_unignored_files_are_sent(checkout: Path) -> None:
    (checkout / "new.py").touch()
    (checkout / "a.log").touch()
    (checkout / "sub" / "cache").mkdir()
    (checkout / "sub" / "cache" / "x").touch()
    assert paths(checkout) == [".gitignore", "new.py", "sub/.gitignore", "train.py"]


def test_berthignore_also_excludes_tracked_files(checkout: Path) -> None:
    (checkout / ".berthignore").write_text("train.py\n/sub/\n")
    assert paths(checkout) == [".berthignore", ".gitignore"]


def test_tracked_file_that_was_deleted_is_not_sent(checkout: Path) -> None:
    (checkout / "train.py").unlink()
    assert paths(checkout) == [".gitignore", "sub/.gitignore"]


def test_commit_branch_and_changes_are_recorded(checkout: Path) -> None:
    state = read(checkout).checkout
    assert (len(state.commit), state.branch, state.dirty) == (40, "main", False)
    (checkout / "train.py").write_text("print(2)\n")
    assert read(checkout).checkout.dirty
    git(checkout, "checkout", "-q", "--detach")
    section = read(checkout).section("0" * 64)
    assert section == {"tree": "0" * 64, "commit": state.commit, "dirty": True}


def test_checkout_without_a_commit_can_be_sent(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    git(tmp_path, "init", "-q")
    assert read(tmp_path).section("0" * 64) == {"tree": "0" * 64, "branch": read(tmp_path).checkout.branch}


def test_subdirectory_of_a_checkout_becomes_the_root_of_the_sent_tree(checkout: Path) -> None:
    (checkout / "sub" / "a.py").touch()
    assert paths(checkout / "sub") == [".gitignore", "a.py"]


def test_submodules_and_nested_checkouts_are_sent(checkout: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "lib.py").touch()
    git(library, "init", "-q")
    git(library, "add", ".")
    git(library, "commit", "-q", "-m", "Start")
    git(checkout, "submodule", "add", "-q", str(library), "library")
    git(checkout, "clone", "-q", str(library), "nested")
    sent = paths(checkout)
    assert {"library/lib.py", "nested/lib.py"} < set(sent)
    assert not any("/.git/" in path for path in sent)


def test_directory_without_git_is_sent_without_ignored_files(tmp_path: Path) -> None:
    for name in ("a.py", "data/x.bin", "src/b.py", "src/c.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("data/\n")
    (tmp_path / ".berthignore").write_text("*.log\n")
    assert paths(tmp_path) == [".berthignore", ".gitignore", "a.py", "src/b.py"]


def test_gitignore_files_in_subdirectories_also_apply_without_git(tmp_path: Path) -> None:
    for name in ("a.log", "keep.log", "sub/b.log", "sub/keep.log", "sub/x/b.log", "cache/x", "sub2/b.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "sub" / ".gitignore").write_text("!keep.log\n!/b.log\n")
    (tmp_path / "cache" / ".gitignore").write_text("*\n")
    assert paths(tmp_path) == [".gitignore", "sub/.gitignore", "sub/b.log", "sub/keep.log"]


def test_links_inside_the_tree_are_kept_as_links(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").touch()
    (tmp_path / "src" / "up").symlink_to("../src/a.py")
    (tmp_path / "code").symlink_to("src")
    links = {entry["path"]: entry["link"] for entry in read(tmp_path).entries if "link" in entry}
    assert links == {"code": "src", "src/up": "../src/a.py"}


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "src/../../outside"])
def test_error_names_a_link_that_points_outside_the_tree(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to(target)
    assert "leads out of the tree" in rejection(tmp_path)
    assert "link" in rejection(tmp_path)


def test_error_names_a_special_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sock"))
        assert "pipe" in rejection(tmp_path)
        assert "sock" in rejection(tmp_path)
    (tmp_path / ".berthignore").write_text("pipe\nsock\n")
    assert paths(tmp_path) == [".berthignore"]


def test_error_names_a_file_with_a_non_utf8_name(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff.py")).touch()
    assert r"a\xff.py" in rejection(tmp_path)


def test_two_gigabyte_file_is_rejected_without_being_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(2 * 2**30)
    (tmp_path / "huge.bin").chmod(0)
    message = rejection(tmp_path)
    assert "2048.0 MiB" in message
    assert "huge.bin" in message
    assert ".berthignore" in message


def test_too_many_files_are_rejected(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}").touch()
    assert "too many files" in rejection(tmp_path, files=4)


def test_home_directory_and_its_parents_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / "dave"
    (home / "project").mkdir(parents=True)
    (home / "project" / "a.py").touch()
    monkeypatch.setenv("HOME", str(home))
    for place in (home, home.parent, Path("~")):
        assert "is your home directory or contains it" in rejection(place)
    assert paths(home / "project") == ["a.py"]


def test_missing_and_empty_directories_are_rejected(tmp_path: Path) -> None:
    assert "is not a directory" in rejection(tmp_path / "none")
    assert "contains no files" in rejection(tmp_path)


def test_file_that_changes_before_it_is_sent_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one")
    tree = read(tmp_path)
    (tmp_path / "a.py").write_text("two")
    with pytest.raises(SpecError, match="changed while it was being sent"):
        list(tree.uploads(list(tree.chunks)))


def test_link_that_replaced_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one")
    tree = read(tmp_path)
    (tmp_path / "a.py").unlink()
    (tmp_path / "a.py").symlink_to("/etc/passwd")
    with pytest.raises(SpecError, match="changed while it was being sent"):
        list(tree.uploads(list(tree.chunks)))


def test_large_file_is_sent_in_several_requests_of_bounded_size(tmp_path: Path) -> None:
    content = os.urandom(3 * CHUNK_BYTES + 5)
    (tmp_path / "weights.bin").write_bytes(content)
    tree = read(tmp_path)
    (entry,) = tree.entries
    bodies = [body for body, _ in tree.uploads(entry["chunks"])]
    assert max(map(len, bodies)) < 9 * MIB
    parts = {header["digest"]: part for body in bodies for header, part in unpack_frames(body)}
    assert b"".join(parts[digest] for digest in entry["chunks"]) == content


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (2**31, "2048.0 MiB")],
)
def test_size_is_formatted_with_a_suitable_unit(size: int, text: str) -> None:
    assert format_size(size) == text
