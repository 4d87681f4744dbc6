"""Tests for launch requests of pilot jobs, in addition to the contract of all providers."""

import os
import stat
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from berth.core.errors import Invalid
from pools.providers.base import InstanceState, ProviderError, ProviderErrorKind
from pools.providers.commands import LocalCommands
from pools.providers.slurm.submission import pilot_script
from pools.runtimes.shim.processes import start_time
from tests.fakes.slurm import FakeSlurm
from tests.journeys.installation import until
from tests.pools.slurm.stage import make_slurm, order, slurm_provider, use_commands


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    return make_slurm(tmp_path)


def test_slurm_job_requests_the_resources_of_a_pool_node(slurm: FakeSlurm) -> None:
    provider = slurm_provider(
        slurm, account="research", qos="high", constraint="a100&ib", gres="gpu:a100", time_limit="24h",
        options=["--reservation=gpu-week"],
    )  # fmt: skip
    provider.provision(order(count=1))
    [job] = slurm.jobs
    assert {
        "--partition=gpu", "--account=research", "--qos=high", "--constraint=a100&ib", "--gres=gpu:a100:2",
        "--time=1440", "--cpus-per-task=4", "--mem=8192M", "--exclusive", "--no-requeue", "--export=NIL",
        "--dependency=singleton", "--signal=B:USR1@600", "--reservation=gpu-week",
        "--job-name=berth.here.small.0.0123456789ab",
    } <= set(job["arguments"])  # fmt: skip


def test_slurm_job_token_is_stored_only_in_a_private_file(slurm: FakeSlurm) -> None:
    provider = slurm_provider(slurm)
    provider.provision(order(count=1))
    [job] = slurm.jobs
    assert "s3cret" not in job["script"] + " ".join(job["arguments"]) + job["Name"]
    [file] = (slurm.root / "shared" / "pilots").iterdir()
    assert "token=s3cret" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_berths_environment_is_not_passed_to_slurm_commands(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTH_SECRET_KEY", "s3cret-key")
    printed = LocalCommands().run(["env"], seconds=10).stdout
    assert "s3cret-key" not in printed
    assert "PATH=" in printed


def test_pilot_file_is_deleted_with_a_job_that_never_started(slurm: FakeSlurm) -> None:
    slurm.set(machines=["n0"])
    provider = slurm_provider(slurm)
    created = provider.provision(order(count=2)).instances
    assert [instance.state for instance in created] == [InstanceState.READY, InstanceState.QUEUED]
    provider.terminate("small", [created[1].instance_id])
    [file] = (slurm.root / "shared" / "pilots").iterdir()
    assert ".small.0." in file.name
    assert len(slurm.queue()) == 1


@pytest.mark.parametrize("option", ["--export=ALL", "--exp=ALL", "--output=/tmp/log", "--help", "--version"])
def test_sbatch_options_that_would_break_job_tracking_are_rejected(slurm: FakeSlurm, option: str) -> None:
    with pytest.raises(Invalid, match="is set by Berth"):
        slurm_provider(slurm, options=[option])


def test_pilot_file_of_a_long_pending_job_is_not_deleted(slurm: FakeSlurm) -> None:
    slurm.set(machines=[])
    provider = slurm_provider(slurm)
    provider.provision(order(count=1))
    pilots = slurm.root / "shared" / "pilots"
    waiting = next(pilots.iterdir())
    abandoned = pilots / "berth.here.small.7.abandoned"
    abandoned.touch()
    for file in (waiting, abandoned):
        os.utime(file, (0, 0))
    other = slurm_provider(slurm, installation="there")
    other.provision(order("ba9876543210", count=1))
    assert waiting.exists()
    assert not abandoned.exists()


def test_next_submission_deletes_the_pilot_file_of_an_interrupted_submission(slurm: FakeSlurm) -> None:
    slurm.set(machines=[])
    provider = slurm_provider(slurm)
    provider.provision(order(count=1))
    pilots = slurm.root / "shared" / "pilots"
    waiting = next(pilots.iterdir())
    abandoned, foreign = pilots / "berth.here.small.7.abandoned", pilots / "berth.here.large.7.elsewhere"
    for file in (waiting, abandoned, foreign):
        file.touch()
        os.utime(file, (time.time() - 2 * 3600,) * 2)
    provider.provision(order("ba9876543210", count=1))
    assert (waiting.exists(), abandoned.exists(), foreign.exists()) == (True, False, True)


def test_pilot_file_is_kept_if_the_submission_response_is_lost(slurm: FakeSlurm) -> None:
    provider = slurm_provider(slurm)
    slurm.set(loses_response=True)
    with pytest.raises(ProviderError) as raised:
        provider.provision(order(count=1))
    assert raised.value.kind is ProviderErrorKind.TIMEOUT
    slurm.set(loses_response=False)
    [instance] = provider.provision(order(count=1)).instances
    assert instance.state is InstanceState.READY
    [file] = (slurm.root / "shared" / "pilots").iterdir()
    assert file.name == slurm.jobs[0]["Name"]


def test_setup_commands_run_only_in_slurm_jobs(slurm: FakeSlurm, tmp_path: Path) -> None:
    setup = ["BERTH_PILOT_SCRIPT", ")", f"touch {tmp_path}/ran", "BERTH_PILOT_FILE", "echo 'it'\"'\"'s'"]
    slurm_provider(slurm, setup=setup).provision(order(count=1))
    assert not (tmp_path / "ran").exists()
    [job] = slurm.jobs
    assert "\n".join(setup) in job["script"]


def test_rejected_job_reports_slurms_message_and_leaves_no_pilot_file(slurm: FakeSlurm) -> None:
    slurm.set(rejection="Invalid account or account/partition combination specified")
    with pytest.raises(ProviderError) as raised:
        slurm_provider(slurm, account="nope").provision(order())
    assert raised.value.kind is ProviderErrorKind.SETTINGS
    expected = "Batch job submission failed: Invalid account or account/partition combination specified"
    assert raised.value.message == expected
    assert list((slurm.root / "shared" / "pilots").iterdir()) == []


def test_request_beyond_a_submit_limit_is_partly_fulfilled_with_a_reason(slurm: FakeSlurm) -> None:
    slurm.set(accepts=3)
    provider = slurm_provider(slurm)
    result = provider.provision(order(count=5))
    assert [instance.ordinal for instance in result.instances] == [0, 1, 2]
    assert result.message.startswith("Slurm accepted 3 jobs of 5: AssocMaxSubmitJobLimit; ")
    with pytest.raises(ProviderError) as raised:
        provider.provision(order("another", start=3))
    assert raised.value.kind is ProviderErrorKind.QUOTA


def test_repeated_launch_request_queries_the_accounting_database_for_ended_jobs(slurm: FakeSlurm) -> None:
    provider = slurm_provider(slurm)
    created = provider.provision(order()).instances
    provider.terminate("small", [instance.instance_id for instance in created])
    slurm.purge()
    slurm.set(accounting=True)
    again = provider.provision(order()).instances
    assert [instance.instance_id for instance in again] == [instance.instance_id for instance in created]
    assert {instance.state for instance in again} == {InstanceState.GONE}
    assert len(slurm.jobs) == 2


def test_repeated_launch_request_is_not_submitted_during_an_accounting_database_outage(
    slurm: FakeSlurm,
) -> None:
    provider = slurm_provider(slurm)
    slurm.set(accounting="down")
    with pytest.raises(ProviderError, match="Problem talking to the database") as raised:
        provider.provision(order())
    assert raised.value.kind is ProviderErrorKind.TIMEOUT
    assert slurm.jobs == []
    assert len(provider.provision(replace(order(), is_repeated=False)).instances) == 2


def test_hanging_slurm_command_is_killed_at_its_time_limit(tmp_path: Path) -> None:
    # The shell's child would otherwise keep the pipes open.
    script = f"sleep 1000 & echo $! > {tmp_path}/pid; wait"
    with pytest.raises(ProviderError, match="did not finish within") as raised:
        LocalCommands().run(["sh", "-s"], stdin=script, seconds=3)
    assert raised.value.kind is ProviderErrorKind.TIMEOUT
    hanging = Path("/proc", (tmp_path / "pid").read_text().strip(), "cmdline")
    until(lambda: not hanging.exists() or not hanging.read_bytes())


def test_jobs_of_other_users_and_installations_are_never_cancelled(slurm: FakeSlurm) -> None:
    provider, other = slurm_provider(slurm), slurm_provider(slurm, "there")
    theirs = other.provision(order(count=1)).instances
    slurm.add("train.py")
    slurm.add("berth.here.large.0.t9")
    assert provider.list_instances("small") == ()
    ids = [*(instance.instance_id for instance in theirs), "2", "2-t9", "3-t9", "x", ""]
    provider.terminate("small", ids)
    assert len(slurm.queue()) == 3
    assert "scancel" not in slurm.calls


def test_unreachable_slurm_raises_a_timeout_error_and_creates_no_duplicate_jobs(slurm: FakeSlurm) -> None:
    provider = slurm_provider(slurm)
    slurm.set(down=True)
    for call in (lambda: provider.list_instances("small"), lambda: provider.provision(order())):
        with pytest.raises(ProviderError) as raised:
            call()
        assert raised.value.kind is ProviderErrorKind.TIMEOUT
        assert raised.value.message == "Unable to contact slurm controller (connect failure)"
    slurm.set(down=False)
    provider.provision(order())
    assert len(provider.provision(order()).instances) == len(slurm.jobs) == 2


def test_missing_slurm_commands_are_named_with_the_remedy(slurm: FakeSlurm) -> None:
    provider = slurm_provider(slurm)
    (slurm.root / "bin" / "squeue").unlink()
    (slurm.root / "bin" / "sh").symlink_to("/bin/sh")
    use_commands(provider, LocalCommands({"PATH": str(slurm.root / "bin")}, "the login node"))
    with pytest.raises(ProviderError, match="squeue is not installed on the login node"):
        provider.list_instances("small")


def test_slurm_commands_are_found_in_the_configured_directory(slurm: FakeSlurm) -> None:
    provider = slurm_provider(slurm, bin=str(slurm.root / "bin"))
    use_commands(provider, LocalCommands({"PATH": "/usr/bin:/bin", "HOME": str(slurm.root)}))
    assert len(provider.provision(order()).instances) == len(slurm.jobs) == 2


def test_hanging_command_raises_a_timeout_error(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pools.providers.slurm.programs.QUERY_SECONDS", 0.2)
    (slurm.root / "bin" / "squeue").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(ProviderError) as raised:
        slurm_provider(slurm).list_instances("small")
    assert raised.value.kind is ProviderErrorKind.TIMEOUT


def test_pilot_script_is_valid_shell_and_contains_the_path_of_the_private_file(slurm: FakeSlurm) -> None:
    script = pilot_script(slurm_provider(slurm, setup=["module load python/3.11"]).settings)
    assert subprocess.run(["bash", "-n"], input=script.encode(), check=False).returncode == 0
    assert f"file={slurm.root}/shared/pilots/@NAME@\n" in script
    assert "module load python/3.11\n" in script
    home = pilot_script(slurm_provider(slurm, directory="~/.berth").settings)
    assert 'file="$HOME"/.berth/pilots/@NAME@\n' in home


def test_job_deletes_only_files_left_by_killed_jobs(slurm: FakeSlurm, tmp_path: Path) -> None:
    # Directories without a job were left by processes that had not ended yet, or belong to others.
    names = (
        "berth-1",
        "berth-2",
        "berth-3/ray",
        "berth-4/ray",
        "berth-5/mine",
        "berth-notes",
        ".berth-ended-6",
    )
    for name in names:
        (tmp_path / name).mkdir(parents=True)
    began = start_time(os.getpid())
    (tmp_path / "berth-1/job").write_text(f"{os.getpid()} {began}")
    (tmp_path / "berth-2/job").write_text(f"{os.getpid()} {int(began) - 1}")  # another process had this ID
    for name in ("berth-3", "berth-5", "berth-notes"):
        os.utime(tmp_path / name, (0, 0))
    cleanup, _, _ = pilot_script(slurm_provider(slurm).settings, load=":").partition("\nstate=")
    subprocess.run(["bash", "-c", cleanup], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True)
    left = sorted(path.name for path in tmp_path.iterdir() if "berth-" in path.name)
    assert left == ["berth-1", "berth-4", "berth-5", "berth-notes"]
