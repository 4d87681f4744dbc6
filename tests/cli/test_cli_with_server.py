"""Tests for the `berth` command against a real server."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from berth.client import NotSignedIn
from berth.core.spec import parse_workload
from projects.models import Workload
from tests import factories
from tests.cast import Cast, training
from tests.cli.conftest import ROOT, RUN, Berth, token_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def as_dave(cast: Cast) -> dict[str, str]:
    assert cast.dave.user
    return {"BERTH_TOKEN": token_of(cast.dave)}


def test_workload_is_submitted_suspended_resumed_cancelled_and_deleted(
    berth: Berth, berth_process: Berth, cast: Cast, live_server: Any
) -> None:
    signed_in = berth_process("login", live_server.url, "-u", "dave", "--password-stdin", "-p", "vision",
                      typed="correct horse battery\n")  # fmt: skip
    assert signed_in.stdout == f"Signed in at {live_server.url} as dave.\n"
    assert "dave" in berth_process("whoami").stdout

    assert (
        berth("submit", "-n", "train", "-g", "1", "-r", "2", "--", "true").stdout
        == "vision/train submitted\n"
    )
    listed = json.loads(berth("list", "-o", "json").stdout)
    assert [(row["name"], row["phase"]) for row in listed] == [("train", "pending")]
    assert berth("describe", "vision/train").stdout.startswith("Workload    vision/train\n")
    assert "command:\n- 'true'\n" in berth("describe", "train", "--spec").stdout
    assert berth("suspend", "train").stdout == "vision/train is suspended\n"
    assert berth("resume", "train").stdout == "vision/train is pending\n"
    assert berth("cancel", "train").stdout == "vision/train is cancelled\n"
    assert "submitted" in berth("events", "train").stdout
    assert berth("list").stdout == ""
    assert "cancelled" in berth("list", "--all").stdout
    assert berth("resubmit", "train").stdout == "vision/train submitted again as vision/train-2\n"
    assert "command:\n- 'true'\n" in berth("describe", "train-2", "--spec").stdout
    assert berth("delete", "train").stdout == "vision/train deleted\n"

    assert berth("logout").stdout == f"Signed out of {live_server.url}.\n"
    assert berth_process("list").returncode == 3


def test_login_with_a_wrong_password_stores_no_token(berth: Berth, cast: Cast, live_server: Any) -> None:
    done = berth("login", live_server.url, "-u", "dave", "--password-stdin", typed="wrong\n")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "berth: Wrong username or password.\n"
    assert berth("whoami").returncode == 3


def test_logout_revokes_the_token(berth: Berth, cast: Cast, live_server: Any, tmp_path: Path) -> None:
    from berth.client import Client
    from berth.client.config import read_contexts

    berth("login", live_server.url, "-u", "dave", "--password-stdin", typed="correct horse battery\n")
    before = read_contexts(tmp_path / "config.toml").resolve()
    berth("logout")
    assert read_contexts(tmp_path / "config.toml").resolve().token == ""
    with Client(before) as client, pytest.raises(NotSignedIn):
        client.whoami()


@pytest.mark.heavy
def test_each_kind_of_error_has_its_own_exit_code(berth: Berth, as_dave: dict[str, str], cast: Cast) -> None:
    assert berth("submit", "-n", "train", "-p", "vision", "--", "true", **as_dave).returncode == 0
    again = berth("submit", "-n", "train", "-p", "vision", "--", "true", **as_dave)
    assert again.returncode == 5, again.stderr
    assert berth("delete", "train", **as_dave).returncode == 5
    assert berth("describe", "nobody", **as_dave).returncode == 4
    assert berth("describe", "ads/train", **as_dave).returncode == 4
    assert berth("quota", "set", "vision", "--pool", "local", "--gpu", "4", **as_dave).returncode == 1
    assert (
        berth("submit", "-n", "t2", "-p", "vision", "--pool", "nowhere", "--", "true", **as_dave).returncode
        == 2
    )
    assert berth("list", BERTH_TOKEN="berth_wrong").returncode == 3
    unreachable = berth("list", BERTH_URL="http://127.0.0.1:9", **as_dave)
    assert unreachable.returncode == 6
    assert unreachable.stderr == "berth: cannot reach http://127.0.0.1:9: Connection refused.\n"
    assert berth("list", "--nonsense", **as_dave).returncode == 2


def test_ambiguous_workload_name_is_rejected(berth: Berth, cast: Cast) -> None:
    alice = {"BERTH_TOKEN": token_of(cast.alice)}
    for project in ("vision", "ads"):
        assert berth("submit", "-n", "train", "-p", project, "--", "true", **alice).returncode == 0
    done = berth("cancel", "train", **alice)
    assert done.returncode == 2
    assert done.stderr == "berth: train matches 2 workloads: ads/train, vision/train.\n"
    assert Workload.objects.filter(phase="pending").count() == 2


def test_code_upload_requires_a_project(berth: Berth, cast: Cast, tmp_path: Path) -> None:
    bob = {"BERTH_TOKEN": token_of(cast.bob)}
    rejected = berth("submit", "--code", str(tmp_path), "-n", "x", "--", "true", **bob)
    assert rejected.returncode == 1
    assert rejected.stderr == "berth: Specify the project whose pods use the code.\n"


def test_quota_set_keeps_omitted_values(berth: Berth, cast: Cast) -> None:
    bob = {"BERTH_TOKEN": token_of(cast.bob)}
    made = berth("quota", "set", "vision", "--pool", "local", "--gpu", "4", "--weight", "2", **bob)
    assert made.returncode == 0, made.stderr
    assert made.stderr.startswith("berth: the fair share is computed in the next scheduling cycle.\n")
    assert made.stderr.endswith(
        "berth: warning: Project quotas in research add up to 4 GPUs, more than the department's own quota "
        "(no GPU). Not all of them can be used at the same time.\n"
    )
    berth("quota", "set", "vision", "--pool", "local", "--gpu-limit", "6", "--no-over-quota", **bob)
    cpus = berth("quota", "set", "vision", "--pool", "local", "--cpu", "3", "--cpu-limit", "5", **bob).stdout
    assert cpus.splitlines()[0].split()[-3:] == ["CPU", "CPU", "LIMIT"]
    assert cpus.splitlines()[1].split()[-2:] == ["3", "5"]
    [stored] = json.loads(berth("quota", "show", "vision", "-o", "json", **bob).stdout)
    assert (stored["gpu"], stored["limit"]["gpu"], stored["weight"], stored["over_quota"]) == (4, 6, 2, False)
    rejected = berth("quota", "set", "vision", "--pool", "local", "--gpu", "7", **bob)
    assert rejected.returncode == 2
    assert "gpu" in rejected.stderr
    output = berth("quota", "show", "vision", "--why", **bob).stdout
    assert "vision: GPUs of research in pool local" in output
    assert "  Total request (allocated and pending): no GPU.\n  Fair share: no GPU.\n" in output
    assert berth("quota", "show", "--why", **bob).returncode == 2
    for words in (("ads", "--why"), ("visoin",)):
        rejected = berth("quota", "show", *words, **bob)
        assert (rejected.returncode, rejected.stdout) == (2, "")
        assert "NAME: does not exist; received" in rejected.stderr
    assert "Did you mean `vision`?" in rejected.stderr


def test_quota_change_is_previewed_applied_listed_and_reverted(
    berth: Berth, cast: Cast, tmp_path: Path
) -> None:
    alice = {"BERTH_TOKEN": token_of(cast.alice)}
    words = ["--set", "research/vision:local.gpu=4", "--set", "research:local.limit.gpu=6"]
    planned = berth("quota", "preview", *words, **alice)
    assert (planned.returncode, planned.stderr) == (1, "")
    assert planned.stdout.startswith("vision in pool local: new: gpu 4")
    assert (
        "Warning: Project quotas in research add up to 4 GPUs, more than the department's" in planned.stdout
    )
    assert berth("quota", "show", **alice).stdout == "", "a plan stores nothing"

    rejected = berth("quota", "apply", *words, typed="n\n", **alice)
    assert (rejected.returncode, berth("quota", "show", **alice).stdout) == (1, "")
    applied = berth("quota", "apply", *words, "--yes", "--comment", "vision begins", **alice)
    assert (applied.returncode, applied.stdout[:7]) == (0, "Change ")
    change = applied.stdout.split()[1]
    assert berth("quota", "preview", *words, **alice).returncode == 0, (
        "nothing changed: all quotas already have these values"
    )
    file = tmp_path / "draft.yaml"
    file.write_text("changes:\n- {project: vision, pool: local, set: {gpu: 5}}\n")
    from_file = berth("quota", "preview", "-f", str(file), **alice)
    assert (from_file.returncode, from_file.stdout.splitlines()[0]) == (1, "vision in pool local: gpu 4 -> 5")
    listed = berth("quota", "history", **alice).stdout
    assert "vision in pool local: new: gpu 4" in listed
    assert "vision begins" in listed
    assert berth("quota", "revert", change, **alice).stdout.startswith(f"Change {change} reverted by")
    assert berth("quota", "revert", change, **alice).returncode == 5
    assert berth("quota", "show", **alice).stdout == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to change"),
        (["--set", "research/vision.gpu=4"], "allowed: DEPARTMENT/PROJECT:POOL.KEY=VALUE"),
        (
            ["--set", "product/vision:local.gpu=4"],
            "vision belongs to research; received 'product/vision:local.gpu=4'; allowed: research/vision",
        ),
        (
            ["--set", "research/vision:local.gpu=many"],
            "changes[0].set.gpu: is not a valid amount; received 'many'",
        ),
        (["--set", "research/visoin:local.gpu=1"], "Did you mean `vision`?"),
        (
            ["--set", "research/vision:local.gpu=1", "--set", "research/vision:local.gpu=2"],
            "sets gpu a second time",
        ),
        (["--remove", "research/vision"], "allowed: DEPARTMENT/PROJECT:POOL"),
        (["-f", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
)
def test_preview_of_an_invalid_change_exits_with_255(
    words: list[str], message: str, berth: Berth, cast: Cast
) -> None:
    done = berth("quota", "preview", *words, BERTH_TOKEN=token_of(cast.alice))
    assert (done.returncode, done.stdout) == (255, "")
    assert message in done.stderr
    assert all(line.startswith("berth: ") for line in done.stderr.splitlines())


def test_preview_without_a_token_or_permission_exits_with_255(
    berth: Berth, as_dave: dict[str, str], cast: Cast
) -> None:
    words = ["quota", "preview", "--set", "research/vision:local.gpu=1"]
    assert berth(*words).returncode == 255
    rejected = berth(*words, **as_dave)
    assert rejected.returncode == 255
    assert rejected.stderr == (
        "berth: Your role does not allow you to set this quota. You need the department admin role in the "
        "department research. Ask one of its admins to grant it.\n"
    )


def test_replay_reproduces_the_decisions_of_a_cycle(berth: Berth, cast: Cast, tmp_path: Path) -> None:
    from tests.scheduler.stage import Stage

    alice = {"BERTH_TOKEN": token_of(cast.alice)}
    stage = Stage(cast)
    stage.node(0)
    stage.submit("train", roles=[{"name": "worker", "replicas": 2, "gpu": 1}])
    stage.tick()
    (line,) = berth("cycles", **alice).stdout.splitlines()[1:]
    number, saved = line.split()[0], tmp_path / "cycle.json"
    again = berth("replay", number, "--save", str(saved), **alice)
    assert again.returncode == 0
    assert again.stdout.startswith(f"Replay of cycle {number} gives the same plan (1 bundle, 0 pending)")
    assert "start vision/train: 2 x worker to local-0" in berth("simulate", str(saved)).stdout
    assert berth("replay", "999999", **alice).returncode == 4
    assert berth("replay", number, BERTH_TOKEN=token_of(cast.bob)).returncode == 4


def test_markup_in_labels_is_printed_as_text(berth: Berth, as_dave: dict[str, str]) -> None:
    done = berth(
        "submit", "-n", "t", "-p", "vision", "-l", "note=[red]<b>\u001b[31mx", "--", "true", **as_dave
    )
    assert done.returncode == 2
    berth("submit", "-n", "t", "-p", "vision", "-l", "note=[red]<b>", "--", "true", **as_dave)
    assert "note [red]<b>" in berth("describe", "t", **as_dave).stdout


def test_piped_table_is_neither_truncated_nor_coloured(
    berth: Berth, as_dave: dict[str, str], cast: Cast
) -> None:
    for number in range(3):
        berth(
            "submit",
            "-n",
            f"a-rather-long-name-for-a-workload-{number}",
            "-p",
            "vision",
            "--",
            "true",
            **as_dave,
        )
    table = berth("list", "-o", "wide", **as_dave).stdout
    assert "\x1b" not in table
    assert "…" not in table
    assert {len(line.split()) >= 14 for line in table.splitlines()} == {True}


def test_file_with_one_invalid_document_is_rejected_entirely(
    berth: Berth, as_dave: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "work.yaml"
    file.write_text("name: a\nproject: vision\nroles: [{gpu: 1}]\n---\nname: b\nroles: [{gpus: 1}]\n")
    done = berth("submit", "-f", str(file), **as_dave)
    assert done.returncode == 2
    assert f"{file}, document 2: roles[0].gpus: unknown key" in done.stderr
    assert not Workload.objects.exists()


def test_stored_spec_equals_the_submitted_document(
    berth: Berth, as_dave: dict[str, str], tmp_path: Path
) -> None:
    document = json.dumps({**training("train-1"), "project": "vision"})
    assert berth("submit", "-f", "-", typed=document, **as_dave).returncode == 0
    shown = berth("describe", "train-1", "--spec", "-o", "json", **as_dave).stdout
    assert parse_workload(json.loads(shown)) == parse_workload(json.loads(document))


def test_ctrl_c_ends_watch_without_a_traceback(
    berth: Berth, as_dave: dict[str, str], environment: dict[str, str]
) -> None:
    # The default handler is restored because shells make background jobs ignore SIGINT.
    berth("submit", "-n", "train", "-p", "vision", "--", "true", **as_dave)
    watching = subprocess.Popen(
        [*RUN, "list", "--watch"], env={**environment, **as_dave}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    try:
        assert watching.stdout
        assert watching.stdout.readline().startswith("NAME")
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=180)
    finally:
        watching.kill()
    assert watching.returncode == 130
    assert "Traceback" not in errors


def packages_loaded_by(code: str) -> set[str]:
    """Return the packages that Python has loaded after running `code`."""
    listing = "print(*(name for name in sys.modules if sys.modules[name]))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; {listing}"],
        capture_output=True, text=True, timeout=180, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")])},
    )  # fmt: skip
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_cli_startup_loads_no_heavy_libraries() -> None:
    heavy = {"httpx", "pydantic", "rich", "django", "yaml", "numpy", "scheduler"}
    assert not packages_loaded_by("import berth.cli.main") & heavy


def test_cli_does_not_load_the_cli_of_the_http_library() -> None:
    loaded = packages_loaded_by("import berth.cli.main, berth.cli.commands.workloads.listing, httpx")
    assert "httpx" in loaded
    assert not loaded & {"rich", "click", "pygments"}


def test_client_loads_no_server_packages() -> None:
    assert not packages_loaded_by("import berth.client") & {"django", "projects", "pools", "scheduler"}


def test_submission_prints_a_warning_about_unenforced_limits(
    berth: Berth, as_dave: dict[str, str], cast: Cast
) -> None:
    options = ("-n", "train", "-p", "vision", "--cpu", "1", "--cpu-limit", "2", "--memory-limit", "4Gi")
    expected = "warning: The CPU and memory limits of role worker are not enforced on the pool local"
    dry_run = berth("submit", *options, "--dry-run", "--", "true", **as_dave)
    assert (dry_run.returncode, expected in dry_run.stdout) == (0, True)
    done = berth("submit", *options, "--", "true", **as_dave)
    assert (done.returncode, done.stdout) == (0, "vision/train submitted\n")
    assert f"berth: {expected}" in done.stderr


def test_reason_for_a_rejected_image_is_printed(berth: Berth, as_dave: dict[str, str], cast: Cast) -> None:
    options = ("-n", "train", "-p", "vision", "--image", "docker.io/org/torch:2", "--", "true")
    for more in ((), ("--dry-run",)):
        done = berth("submit", *more, *options, **as_dave)
        assert done.returncode == 2
        assert "image: cannot be used: pool local does not run container images" in done.stderr
    assert not Workload.objects.exists()


def test_projects_are_always_listed_under_their_own_department(berth: Berth, cast: Cast) -> None:
    for owner in (cast.product, cast.ads, cast.vision, cast.speech):
        factories.quota(owner, cast.pool, 2)
    alice = {"BERTH_TOKEN": token_of(cast.alice)}
    for command in ("quota show", "share", "share local -o wide"):
        lines = berth(*command.split(), **alice).stdout.splitlines()[1:]
        assert [line.split(" local ")[0].rstrip() for line in lines] == [
            "product", "  ads", "research", "  speech", "  vision",
        ], command  # fmt: skip
        assert set(lines[2].split()[2:]) == {"-"}, "research has no quota"
    dave = berth("quota", "show", BERTH_TOKEN=token_of(cast.dave)).stdout.splitlines()[1:]
    assert [line.split()[0] for line in dave] == ["research", "vision"]
    assert len(berth("quota", "show", "vision", **alice).stdout.splitlines()) == 2, "only the named owner"
    stored = json.loads(berth("quota", "show", "-o", "json", **alice).stdout)
    assert "research" not in {quota["owner"]["name"] for quota in stored}, "data lists only quotas"


def test_department_quotas_are_compared_with_the_maximum_pool_size(berth: Berth, cast: Cast) -> None:
    alice = {"BERTH_TOKEN": token_of(cast.alice)}

    def warning(gpus: int) -> str:
        result = berth(
            "quota", "set", "research", "--department", "--pool", "local", "--gpu", f"{gpus}", **alice
        )
        assert result.returncode == 0, result.stderr
        return "".join(line for line in result.stderr.splitlines() if line.startswith("berth: warning"))

    assert warning(8) == "", "the pool has no nodes now, and up to 4 nodes of 2 GPUs"
    message = "Department quotas in local add up to 9 GPUs; the pool has at most 8 GPUs."
    assert warning(9) == f"berth: warning: {message}"


def test_removal_of_a_missing_quota_is_reported(berth: Berth, cast: Cast) -> None:
    alice = {"BERTH_TOKEN": token_of(cast.alice)}
    removal = ["--remove", "research/vision:local", "--yes"]
    note = "berth: vision in pool local: there was no quota to remove.\n"
    mixed = berth("quota", "apply", "--set", "product/ads:local.gpu=2", *removal, **alice)
    assert (mixed.returncode, mixed.stdout[:7], mixed.stderr) == (0, "Change ", note)
    missing = berth("quota", "apply", *removal, **alice)
    assert (missing.returncode, missing.stdout, missing.stderr) == (0, "", note + "berth: nothing changed.\n")
    factories.quota(cast.vision, cast.pool, 2)
    assert berth("quota", "apply", *removal, **alice).stderr == "", "the quota is removed"
    same = berth("quota", "apply", "--set", "product/ads:local.gpu=2", "--yes", **alice)
    assert same.stderr == "berth: nothing changed: all quotas already have these values.\n"
