"""Tests for fetching code with the real git program from real SSH and HTTPS servers."""

import base64
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from berth.core.spec.sections.git import GitSpec
from projects.code.git import (
    FetchedCommit,
    FetchRequest,
    GitFailure,
    GitPolicy,
    GitRejection,
    fetch_commit,
    scratch,
)
from projects.code.git.scratch import key_directory, scratch_directory, sweep_scratch_directories
from tests.code.git_server import HttpsServer, Repository, git, https_server, new_repository
from tests.pools.ssh.sshd import SshServer, generate_key, needs_sshd, ssh_server


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = new_repository(tmp_path / "repositories")
    repository.commit({"train.py": "print(1)\n", "jobs/a/run.sh": "#!/bin/sh\n", "jobs/b.txt": "b"})
    return repository


@pytest.fixture
def https(tmp_path: Path, repository: Repository) -> Iterator[HttpsServer]:
    with https_server(tmp_path / "https", repository.path.parent) as server:
        yield server


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[SshServer]:
    with ssh_server(tmp_path / "sshd") as server:
        yield server


class Fetcher:
    def __init__(self, base: Path, **policy: Any) -> None:
        self.base, self.policy = base, policy
        self.chunks: dict[str, bytes] = {}

    def __call__(self, url: str, secret: str = "", **section: Any) -> FetchedCommit:
        named = {"secret": "deploy-key"} if secret else {}
        spec = GitSpec.model_validate({"url": url, **named, **section})
        hosts = frozenset({f"{spec.address.host}:{spec.address.effective_port}"})
        policy = GitPolicy(**{"hosts": hosts, "seconds": 240, **self.policy})
        return fetch_commit(FetchRequest(spec, policy, self.base, secret), self._store)

    def _store(self, chunks: Mapping[str, bytes]) -> None:
        self.chunks.update(chunks)

    def contents(self, commit: FetchedCommit) -> dict[str, bytes]:
        return {
            file.path: file.link.encode() or b"".join(self.chunks[digest] for digest in file.chunks)
            for file in commit.files
        }


@pytest.fixture
def over_https(tmp_path: Path, https: HttpsServer) -> Iterator[Fetcher]:
    yield Fetcher(tmp_path / "scratch", ca_file=https.ca_file)
    assert_nothing_is_left(tmp_path / "scratch")


@pytest.fixture
def over_ssh(tmp_path: Path) -> Iterator[Fetcher]:
    yield Fetcher(tmp_path / "scratch")
    assert_nothing_is_left(tmp_path / "scratch")


@pytest.fixture(autouse=True)
def use_temporary_directory_as_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(scratch, "MEMORY", tmp_path / "memory")


def assert_nothing_is_left(base: Path) -> None:
    assert not list(base.glob("*"))
    assert not list(key_directory(base).glob("*/*"))


def command_lines() -> list[bytes]:
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(file.read_bytes())
    return lines


def ssh_url(server: SshServer, repository: Repository) -> str:
    return f"ssh://root@{server.address}:{server.port}{repository.path}"


def test_branches_tags_commits_and_the_default_branch_resolve_to_commits(
    over_https: Fetcher, https: HttpsServer, repository: Repository
) -> None:
    first = git(repository.checkout, "rev-parse", "HEAD")
    repository.tag("v1", "-a", "-m", "v1")
    git(repository.checkout, "checkout", "--quiet", "-b", "topic/new")
    second = repository.commit({"train.py": "print(2)\n"})
    default = over_https(https.url())
    assert (default.commit, default.branch) == (first, "main")
    assert over_https.contents(default)["train.py"] == b"print(1)\n"
    topic = over_https(https.url(), ref="topic/new")
    assert (topic.commit, topic.branch) == (second, "topic/new")
    assert over_https.contents(topic)["train.py"] == b"print(2)\n"
    assert [over_https(https.url(), ref=ref).commit for ref in ("v1", first, "refs/heads/topic/new")] == [
        first, first, second,
    ]  # fmt: skip


@pytest.mark.heavy
def test_requested_directory_becomes_the_root_of_the_fetched_code(
    over_https: Fetcher, https: HttpsServer
) -> None:
    commit = over_https(https.url(), directory="jobs")
    assert over_https.contents(commit) == {"a/run.sh": b"#!/bin/sh\n", "b.txt": b"b"}
    for directory in ("jobs/none", "train.py"):
        with pytest.raises(GitRejection, match=f"has no directory {directory}"):
            over_https(https.url(), directory=directory)


@pytest.mark.heavy
def test_file_modes_and_links_are_kept_but_submodules_are_omitted(
    over_https: Fetcher, https: HttpsServer, repository: Repository
) -> None:
    (repository.checkout / "jobs/a/run.sh").chmod(0o755)
    (repository.checkout / "latest.py").symlink_to("train.py")
    (repository.checkout / "big.bin").write_bytes(os.urandom(9 * 2**20))
    git(repository.checkout, "add", "--all")
    head = git(repository.checkout, "rev-parse", "HEAD")
    git(repository.checkout, "update-index", "--add", "--cacheinfo", f"160000,{head},library")
    (repository.checkout / ".gitmodules").write_text(
        '[submodule "library"]\npath = library\nurl = https://h/x\n'
    )
    git(repository.checkout, "add", ".gitmodules")
    repository.push()
    commit = over_https(https.url())
    assert commit.submodules == 1
    files = {file.path: file for file in commit.files}
    assert (files["jobs/a/run.sh"].executable, files["train.py"].executable) == (True, False)
    assert files["latest.py"].link == "train.py"
    assert len(files["big.bin"].chunks) == 3
    assert over_https.contents(commit)["big.bin"] == (repository.checkout / "big.bin").read_bytes()


@pytest.mark.heavy
@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", "jobs/../../x"])
def test_link_that_points_outside_the_tree_is_rejected(
    target: str, over_https: Fetcher, https: HttpsServer, repository: Repository
) -> None:
    (repository.checkout / "bad").symlink_to(target)
    git(repository.checkout, "add", "--all")
    repository.push()
    with pytest.raises(GitRejection, match="bad is a symbolic link that leads out of the tree"):
        over_https(https.url())


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["..", ".git", "a/b"])
def test_git_tree_with_an_unsafe_path_is_rejected(
    name: str, over_https: Fetcher, https: HttpsServer, repository: Repository
) -> None:
    blob = git(repository.path, "hash-object", "-w", "--stdin", source=b"evil")
    inner = git(repository.path, "mktree", source=f"100644 blob {blob}\tx\n".encode())
    raw = f"40000 {name}\0".encode() + bytes.fromhex(inner)
    tree = git(repository.path, "hash-object", "-t", "tree", "--literally", "-w", "--stdin", source=raw)
    commit = git(repository.path, "commit-tree", tree, "-m", "evil")
    git(repository.path, "update-ref", "refs/heads/main", commit)
    with pytest.raises(GitRejection, match=r"corrupt or unsafe objects|cannot be used"):
        over_https(https.url())


@pytest.mark.heavy
def test_error_for_an_exceeded_fetch_limit_names_its_setting(
    tmp_path: Path, https: HttpsServer, repository: Repository
) -> None:
    repository.commit({"noise.bin": os.urandom(3 * 2**20)})
    for limit, setting in (
        ({"files": 2}, "BERTH_CODE_FILES"),
        ({"size": 2**20}, "BERTH_CODE_MIB"),
        ({"transfer_size": 2**20}, "BERTH_GIT_MIB"),
    ):
        fetch = Fetcher(tmp_path / "scratch", ca_file=https.ca_file, **limit)
        with pytest.raises(GitRejection, match=setting):
            fetch(https.url())
    assert_nothing_is_left(tmp_path / "scratch")


def test_unknown_repository_or_ref_is_rejected_with_a_remedy(
    over_https: Fetcher, https: HttpsServer, repository: Repository
) -> None:
    with pytest.raises(GitRejection, match="has no branch or tag nightly"):
        over_https(https.url(), ref="nightly")
    with pytest.raises(GitRejection, match="does not provide this commit"):
        over_https(https.url(), ref="1" * 40)
    with pytest.raises(GitRejection, match="no such repository"):
        over_https(https.url("other.git"))
    with pytest.raises(GitRejection, match="denies access to it with the secret personal/deploy-key"):
        over_https(https.url("other.git"), "token", personal=True)
    git(repository.checkout, "checkout", "--quiet", "-b", "twice")
    repository.commit({"x": "x"})
    repository.tag("twice", "--no-sign")
    repository.commit({"y": "y"})
    with pytest.raises(GitRejection, match="is both a branch and a tag"):
        over_https(https.url(), ref="twice")
    assert over_https(https.url(), ref="refs/heads/twice").branch == "twice"


@pytest.mark.heavy
def test_git_token_is_sent_as_a_password_and_appears_in_no_command_line(
    over_https: Fetcher, https: HttpsServer, repository: Repository
) -> None:
    https.token = "s3cret-token"
    lines: list[bytes] = []
    https.on_request = lambda: lines.extend(command_lines())
    assert over_https(https.url(), "s3cret-token").branch == "main"
    assert any(b"git\0ls-remote" in line for line in lines)
    login = base64.b64encode(b"git:s3cret-token")
    assert not [line for line in lines if b"s3cret-token" in line or login in line]
    with pytest.raises(
        GitRejection, match=r"denied access\. Check that the secret deploy-key is valid"
    ) as rejected:
        over_https(https.url(), "wrong-token")
    assert "wrong-token" not in str(rejected.value)
    with pytest.raises(GitRejection, match="name a secret in `secret`"):
        over_https(https.url())


def test_redirect_from_a_git_server_is_not_followed(over_https: Fetcher, https: HttpsServer) -> None:
    https.redirect = "https://127.0.0.1:1"
    with pytest.raises(GitRejection, match="redirects this address"):
        over_https(https.url(), "token")


def test_certificate_of_an_unknown_authority_is_rejected(tmp_path: Path, https: HttpsServer) -> None:
    with pytest.raises(GitFailure, match=r"certificate of 127\.0\.0\.1 could not be verified"):
        Fetcher(tmp_path / "scratch")(https.url())
    assert https.requests == []


@pytest.mark.heavy
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "0x7f.1", "2130706433", "169.254.169.254", "10.0.0.1"]
)
def test_private_hosts_are_reached_only_if_an_admin_allows_them(
    host: str, tmp_path: Path, https: HttpsServer
) -> None:
    fetch = Fetcher(tmp_path / "scratch", ca_file=https.ca_file, hosts=frozenset())
    with pytest.raises(GitRejection, match=rf"{host} (is|resolves to) .*BERTH_GIT_HOSTS"):
        fetch(https.url(host=host))
    assert https.requests == []


def test_metadata_service_is_never_contacted_even_if_its_address_is_allowed(tmp_path: Path) -> None:
    fetch = Fetcher(tmp_path / "scratch", hosts=frozenset({"169.254.169.254"}))
    with pytest.raises(GitRejection, match="never allowed"):
        fetch("https://169.254.169.254/latest")


def test_listed_host_is_reachable_only_on_its_listed_port(tmp_path: Path, https: HttpsServer) -> None:
    fetch = Fetcher(tmp_path / "scratch", ca_file=https.ca_file, hosts=frozenset({"127.0.0.1"}))
    with pytest.raises(GitRejection, match="BERTH_GIT_HOSTS"):
        fetch(https.url())


def test_checked_address_is_used_even_if_the_name_later_resolves_differently(
    tmp_path: Path, https: HttpsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        assert host == "code.example.org"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr("projects.code.git.policy.socket.getaddrinfo", resolve)
    fetch = Fetcher(tmp_path / "scratch", ca_file=https.ca_file)
    # The certificate is for other names, which shows that the connection has reached the test's server.
    with pytest.raises(GitFailure, match=r"certificate of code\.example\.org could not be verified"):
        fetch(https.url(host="code.example.org"))


@needs_sshd
def test_repository_is_fetched_over_ssh_with_a_deploy_key(
    over_ssh: Fetcher, ssh: SshServer, repository: Repository
) -> None:
    commit = over_ssh(ssh_url(ssh, repository), ssh.private_key, host_key=ssh.host_key)
    assert over_ssh.contents(commit)["train.py"] == b"print(1)\n"
    assert "Accepted publickey" in ssh.log


@pytest.mark.heavy
@needs_sshd
def test_host_key_comes_from_the_document_or_an_admin_and_is_never_trusted_on_first_use(
    tmp_path: Path, ssh: SshServer, repository: Repository
) -> None:
    stored = tmp_path / "known_hosts"
    fetch = Fetcher(tmp_path / "scratch", known_hosts=stored)
    url = ssh_url(ssh, repository)
    message = r"SSH host key of 127.0.0.1 is unknown or has changed.*host_key.*BERTH_GIT_KNOWN_HOSTS"
    with pytest.raises(GitRejection, match=message):
        fetch(url, ssh.private_key)
    _, other = generate_key(tmp_path / "other")
    with pytest.raises(GitRejection, match=message):
        fetch(url, ssh.private_key, host_key=" ".join(other.split()[:2]))
    assert not stored.exists()
    stored.write_text(f"[127.0.0.1]:{ssh.port} {ssh.host_key}\n")
    assert fetch(url, ssh.private_key).branch == "main"
    assert_nothing_is_left(tmp_path / "scratch")


@needs_sshd
def test_wrong_and_unusable_keys_are_rejected(
    tmp_path: Path, over_ssh: Fetcher, ssh: SshServer, repository: Repository
) -> None:
    wrong, _ = generate_key(tmp_path / "wrong")
    protected, _ = generate_key(tmp_path / "protected", passphrase="geheim")
    url = ssh_url(ssh, repository)
    for key, message in (
        (wrong, "denied access. Check that the secret deploy-key is valid"),
        (protected, "The secret deploy-key is protected by a passphrase"),
        ("not a key", "The secret deploy-key is not a valid private key"),
    ):
        with pytest.raises(GitRejection, match=message) as rejected:
            over_ssh(url, key, host_key=ssh.host_key)
        assert key not in str(rejected.value)


def test_connection_to_a_silent_server_times_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        fetch = Fetcher(tmp_path / "scratch", seconds=1)
        with pytest.raises(GitFailure, match="BERTH_GIT_SECONDS"):
            fetch(f"https://127.0.0.1:{silent.getsockname()[1]}/train.git")
    assert_nothing_is_left(tmp_path / "scratch")


def test_git_settings_and_hooks_of_the_machine_are_ignored(
    tmp_path: Path, over_https: Fetcher, https: HttpsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker, home = tmp_path / "ran", tmp_path / "home"
    (home / "hooks").mkdir(parents=True)
    hook = home / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
    hook.chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[core]\nhooksPath = {home}/hooks\n[http]\nproxy = http://127.0.0.1:1\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert over_https(https.url()).branch == "main"
    assert not marker.exists()


def test_sweep_deletes_only_scratch_directories_that_no_process_uses(tmp_path: Path) -> None:
    with scratch_directory(tmp_path / "git") as used:
        left = tmp_path / "git" / "fetch-left"
        left.mkdir()
        (left / "key").write_text("key")
        assert sweep_scratch_directories(tmp_path / "git") == 1
        assert used.exists()
        assert not left.exists()
    assert sweep_scratch_directories(tmp_path / "git") == 0
