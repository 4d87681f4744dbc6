"""Tests for the archives that transfer files to and from pods."""

import errno
import io
import os
import socket
import stat
import tarfile
from pathlib import Path

import pytest

from berth.client.copies import MESSAGE_BYTES_MAX, MESSAGES_MAX, ErrorLines
from pools.runtimes.shim.channels.archive import BLOCK, CopyError, base_name
from pools.runtimes.shim.channels.packing import Packer
from pools.runtimes.shim.channels.unpacking import EXTENDED_MAX, Unpacker


def copy(source: Path | str, target: Path | str, name: str = "") -> list[str]:
    """Copy a file or directory in parts of unusual size. Return the files that were skipped."""
    skipped: list[str] = []
    data = b"".join(Packer(str(source), skipped.append))
    unpack(data, target, name)
    return skipped


def unpack(data: bytes, target: Path | str, name: str = "") -> Unpacker:
    unpacker = Unpacker(str(target), name)
    try:
        for start in range(0, len(data), 4999):
            unpacker.feed(data[start : start + 4999])
        unpacker.close()
    finally:
        unpacker.abort()
    return unpacker


def test_copied_directory_keeps_names_contents_modes_times_and_inner_links(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    deep = source / "a" / ("long name " * 20) / "ü"
    deep.mkdir(parents=True)
    (deep / "data").write_bytes(os.urandom(2 * BLOCK + 77))
    (source / os.fsdecode(b"not-\xff-unicode")).write_bytes(b"")
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o4750)
    os.utime(source / "run.sh", ns=(1, 1_234_567_890_123_456_789))
    (source / "latest").symlink_to("a")
    (source / "a" / "up").symlink_to("../run.sh")
    (source / "locked").mkdir()
    (source / "locked" / "file").touch()
    (source / "locked").chmod(0o500)
    os.utime(source / "locked", (5, 5))
    assert copy(source, target) == []
    assert tree(target) == tree(source)
    assert stat.S_IMODE((target / "run.sh").stat().st_mode) == 0o750, "without the setuid bit"
    assert (target / "run.sh").stat().st_mtime_ns == 1_234_567_890_123_456_789
    assert (target / "locked").stat().st_mtime == 5
    (target / "other").touch()
    (target / "run.sh").write_text("changed")
    assert copy(f"{source}/.", target) == []
    assert (target / "other").exists(), "files that only the target has are kept"
    assert (target / "run.sh").read_text() == "#!/bin/sh\n"


def tree(root: Path) -> dict[str, object]:
    return {
        str(path.relative_to(root)): path.readlink() if path.is_symlink()
        else stat.S_IMODE(path.stat().st_mode) if path.is_dir() else path.read_bytes()
        for path in root.rglob("*")
    }  # fmt: skip


def test_copy_target_may_be_a_new_name_or_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("content")
    Path("directory/sub").mkdir(parents=True)
    copy("file", "copied")
    copy("file", "directory")
    copy("file", "directory/sub/")
    copy("directory", "second")
    copy("directory", "second")
    assert Path("copied").read_text() == "content"
    expected = {
        "file",
        "sub",
        "sub/file",
        "directory",
        "directory/file",
        "directory/sub",
        "directory/sub/file",
    }
    assert tree(Path("second")).keys() == expected
    Path("link").symlink_to("copied")
    Path("file").write_text("new")
    copy("file", "link")
    assert (Path("copied").read_text(), Path("link").is_symlink()) == ("new", True)
    for source, target, message in (
        ("file", "missing/", "missing/: No such directory"),
        ("file", "missing/name", f"{tmp_path}/missing: No such directory"),
        ("directory", "missing/name", "missing: No such directory"),
        ("nothing", "x", "nothing: No such file or directory"),
        ("/dev/null", "x", "/dev/null is neither a file nor a directory"),
        ("file", "/dev/full", "/dev/full is a device"),
        ("directory", "file", "file: Not a directory"),
    ):
        with pytest.raises(CopyError, match=message):
            copy(source, target)
    Path("second/file").unlink()
    Path("second/file").mkdir()
    with pytest.raises(CopyError, match="second/file is a directory, which a file cannot replace"):
        copy("file", "second")
    assert [base_name(path) for path in ("a/b/", ".", "..", "/", "", "a/..")] == ["b", *["."] * 5]


def test_special_files_and_links_that_point_outside_the_directory_are_omitted(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "a").mkdir(parents=True)
    (source / "absolute").symlink_to("/etc/passwd")
    (source / "a" / "outside").symlink_to("../../x")
    (source / "around").symlink_to("a/../../source/a")
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(source / "socket"))
    skipped = copy(source, target)
    assert sorted(line.removeprefix(f"{source}/").split(" is ")[0] for line in skipped) == [
        "a/outside", "absolute", "around", "pipe", "socket"
    ]  # fmt: skip
    assert tree(target).keys() == {"a"}


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b"", **values: str
) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.pax_headers = kind, link, len(content), values
    return info.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % 512)


def resized(data: bytes, size: int) -> bytes:
    header = bytearray(data[:512])
    header[124:136] = size.to_bytes(12, "big", signed=True)
    header[124] |= 0x80
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data[512:]


@pytest.mark.parametrize(
    "members",
    [
        [member("d/../../evil")],
        [member("/evil")],
        [member("d//evil")],
        [member("../evil")],
        [member("other")],
        [member("d/link", tarfile.SYMTYPE, "/etc"), member("d/link/evil")],
        [member("d/link", tarfile.SYMTYPE, "../..")],
        [member("d/here", tarfile.SYMTYPE, "."), member("d/up", tarfile.SYMTYPE, "here/../..")],
        [member("d/link", tarfile.SYMTYPE, "sub"), member("d/link/evil")],
        [member("d/existing/evil")],
        [member("d/device", tarfile.CHRTYPE)],
        [member("d/pipe", tarfile.FIFOTYPE)],
        [member("d/hard", tarfile.LNKTYPE, "/etc/passwd")],
        [member("d", tarfile.SYMTYPE, "x")],
        [b"no archive at all" * 100],
        [member("x" * 200)[:512] + b"9" * 512],
        [member("d/link", tarfile.SYMTYPE, "a\0b" + "c" * 100)],
        [resized(member("x" * 200), -512)],
        [resized(member("x" * 200), 2**30)],
        [resized(member("d/file"), -512)],
        [resized(member("d/file"), 2**80)],
        [member("d/file", size="9" * 1_000_000)],
        [member("d/file", mtime="9" * 20)],
        [member("d/file", mtime="-" + "9" * 30)],
        [member("d/folder", tarfile.DIRTYPE, mtime="9" * 30)],
    ],
)
def test_malicious_archive_is_rejected_and_writes_nothing_outside_its_target(
    tmp_path: Path, members: list[bytes]
) -> None:
    target, outside = tmp_path / "in" / "target", tmp_path / "outside"
    target.mkdir(parents=True)
    outside.mkdir()
    (target / "existing").symlink_to(outside)
    data = b"".join([member("d", tarfile.DIRTYPE), *members, bytes(1024)])
    with pytest.raises(CopyError):
        unpack(data, target, ".")
    assert not [*tmp_path.rglob("*evil*")]
    assert [*outside.iterdir()] == []
    assert not [path for path in target.iterdir() if path.name.startswith(".berth")]


@pytest.mark.heavy
def test_long_and_repeated_extended_tar_headers_do_not_change_the_copied_file(tmp_path: Path) -> None:
    unused = [b"%d k%06d=\n" % (12, number) for number in range(EXTENDED_MAX // 12)]
    header = resized(member("x" * 200), len(b"".join(unused)))[:512]
    header += b"".join(unused).ljust(EXTENDED_MAX, b"\0")
    unpack(header * 2 + member("file", content=b"abc") + bytes(1024), tmp_path)
    assert (tmp_path / "file").read_bytes() == b"abc"


def test_error_names_a_directory_whose_mode_cannot_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int, mode: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    data = member("d", tarfile.DIRTYPE) + member("d/sub", tarfile.DIRTYPE)
    monkeypatch.setattr(os, "fchmod", fail)
    for target, rest in ((tmp_path / "last", b""), (tmp_path / "first", member("d/file"))):
        with pytest.raises(CopyError, match=f"{target}/sub: Operation not permitted"):
            unpack(data + rest + bytes(1024), target)


def test_file_copy_lists_the_first_errors_of_the_pod_and_counts_further_errors() -> None:
    errors = ErrorLines()
    for number in range(MESSAGES_MAX + 5):
        errors.feed(f"file-{number}: Perm".encode())
        errors.feed(b"ission denied\n\n")
    errors.feed(b"x" * 1_000_000)
    errors.feed(b"x" * 1_000_000)
    errors.end()
    lines = errors.summarize()
    assert lines[:2] == ["file-0: Permission denied", "file-1: Permission denied"]
    assert lines[MESSAGES_MAX:] == ["6 more (the first 1,000 are listed)"]
    assert errors.last == "x" * MESSAGE_BYTES_MAX


def test_requested_file_name_overrides_the_name_in_the_archive(tmp_path: Path) -> None:
    unpack(member(".bashrc", content=b"x") + bytes(1024), tmp_path, "out.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["out.pt"]


def test_incomplete_copy_keeps_the_previous_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    source, target = tmp_path / "model", tmp_path / "target"
    source.write_bytes(os.urandom(100_000))
    target.write_text("previous")
    data = b"".join(Packer(str(source), print))
    for length in (0, 100, 512, 1536, 50_000):
        with pytest.raises(CopyError, match="connection was lost"):
            unpack(data[:length], target)
        assert target.read_text() == "previous"
        assert {path.name for path in tmp_path.iterdir()} == {"model", "target"}
    with pytest.raises(CopyError, match="The archive is empty"):
        unpack(bytes(1024), target)


@pytest.mark.heavy
def test_gnu_tar_archive_is_unpacked(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a/b/c")
        info.size = 3
        archive.addfile(info, io.BytesIO(b"abc"))
    unpacker = unpack(buffer.getvalue(), tmp_path)
    assert (tmp_path / "a" / "b" / "c").read_bytes() == b"abc"
    assert (unpacker.files, unpacker.size) == (1, 3)


def test_file_that_shrinks_while_it_is_read_stops_the_copy(tmp_path: Path) -> None:
    source = tmp_path / "growing"
    source.write_bytes(bytes(3 * BLOCK))
    parts = iter(Packer(str(source), print))
    next(parts), next(parts)
    source.write_bytes(b"")
    with pytest.raises(CopyError, match="growing was truncated while it was copied"):
        list(parts)
