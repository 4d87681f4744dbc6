"""Tests for file transfers with OpenSSH programs and `rsync`."""

import os
import shlex
import shutil
import stat
from pathlib import Path

import pytest

from tests.channels.ssh_user import HOST, SshUser
from tests.contracts.pods import poll_until

pytestmark = pytest.mark.skipif(shutil.which("sftp") is None, reason="needs the OpenSSH client")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Create a directory with a large file, a program, an empty file, a link and a non-UTF-8 name."""
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "large").write_bytes(os.urandom(5 * 2**20 + 7))
    (tree / "inner" / "program").write_text("#!/bin/sh\n")
    (tree / "inner" / "program").chmod(0o750)
    (tree / "empty").touch()
    os.utime(tree / "empty", (1_000_000_000, 1_000_000_000))
    Path(os.fsdecode(bytes(tree) + b"/caf\xe9")).write_text("coffee")
    return tree


def contents(tree: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(tree)): (stat.S_IMODE(values.st_mode), int(values.st_mtime), path.read_bytes())
        for path in sorted(tree.rglob("*"))
        if path.is_file() and (values := path.stat())
    }


@pytest.mark.heavy
def test_scp_copies_directories_in_both_directions(user: SshUser, tree: Path, tmp_path: Path) -> None:
    done = user.run("-rp", str(tree), f"{HOST}:", program="scp")
    assert done.returncode == 0, done.stderr
    done = user.run("-rp", f"{HOST}:tree", str(tmp_path / "copy"), program="scp")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "copy") == contents(tree)
    mode, owner, shell = user.run(HOST, "stat -c '%A %u' tree/inner/program; id -u").stdout.split()
    assert (mode, owner) == (b"-rwxr-x---", shell)
    done = user.run(f"{HOST}:missing", str(tmp_path), program="scp")
    assert (done.returncode, b"No such file" in done.stderr) == (1, True)
    copies = 3
    if user.site.runtime.isolation.level == "users":
        done = user.run(str(tree / "empty"), f"{HOST}:/root/mine", program="scp")
        assert done.returncode == 1, "the user of the pod may not write there"
        copies = 4
    actions = poll_until(
        lambda: [row[1] for row in user.site.audit("_sftp")], lambda rows: len(rows) == 2 * copies
    )
    assert actions.count("close_sftp") == copies


@pytest.mark.heavy
def test_sftp_lists_and_modifies_files_and_resumes_transfers(
    user: SshUser, tree: Path, tmp_path: Path
) -> None:
    half = (tree / "large").read_bytes()[: 2**20]
    (tmp_path / "partial").write_bytes(half)
    batch = f"""
        mkdir data
        put {tree}/large data/first
        rename data/first data/second
        ln -s second data/link
        ln data/second data/hard
        chmod 600 data/second
        ls -l data
        df data
        reget data/second {tmp_path}/partial
        put {tree}/empty gone
        rm gone
        mkdir empty
        rmdir empty
        -get gone {tmp_path}/gone
        -ls /root/missing
        pwd
    """
    done = user.run("-b", "-", HOST, data=batch.encode(), program="sftp")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "partial").read_bytes() == (tree / "large").read_bytes()
    output = done.stdout.decode()
    assert "-rw-------" in output
    assert "lrwxrwxrwx" in output
    assert f"Remote working directory: {user.site.runtime.root}/pods/{user.site.pod.pk}/work" in output
    listed = user.run(HOST, "ls . data; readlink data/link; stat -c %h data/second").stdout.split()
    assert listed[-2:] == [b"second", b"2"]
    assert b"gone" not in listed
    assert b"empty" not in listed


@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")
def test_rsync_copies_in_both_directions(user: SshUser, tree: Path, tmp_path: Path) -> None:
    shell = ["-e", f"ssh -F {shlex.quote(str(user.config))}"]
    for source, target in ((f"{tree}/", f"{HOST}:synced/"), (f"{HOST}:synced/", f"{tmp_path}/copy/")):
        done = user.run_program("rsync", "-a", "--no-owner", "--no-group", *shell, source, target)
        assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "copy") == contents(tree)
