"""Tests for the messages that Berth shows for errors of Slurm's programs."""

from pools.providers.base import ProviderErrorKind
from pools.providers.commands import CommandResult
from pools.providers.slurm.errors import program_error

NO_CONFIGURATION = """\
sinfo: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host
sinfo: error: fetch_config: DNS SRV lookup failed
sinfo: error: _establish_config_source: failed to fetch config
sinfo: fatal: Could not establish a configuration source
"""


def test_missing_configuration_is_explained_without_function_names() -> None:
    error = program_error("sinfo", CommandResult(1, "", NO_CONFIGURATION), "login.example.org")
    assert error.kind is ProviderErrorKind.SETTINGS
    assert str(error) == (
        "sinfo cannot find a slurm.conf or a Slurm controller on login.example.org. "
        "Install the cluster's slurm.conf there"
    )


def test_other_errors_contain_slurms_message_without_function_names() -> None:
    errors = "squeue: error: fetch_config: DNS SRV lookup failed\nslurm_load_jobs error: Invalid user id\n"
    assert str(program_error("squeue", CommandResult(1, "", errors), "here")) == (
        "DNS SRV lookup failed; Invalid user id"
    )
