"""Tests for the settings of pools that use slurmrestd, and for their tokens."""

from typing import Any

import pytest

from berth.core.errors import Invalid
from pools.providers.slurm.rest.token import parse_token, token_expiry
from pools.providers.slurm.settings import slurm_settings
from tests.fakes.slurm.rest import TOKEN, USER
from tests.pools.slurm.test_slurmrestd import now, token_expiring_at


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://slurm.example.org:6820", "would send the token over an unencrypted connection"),
        ("https://berth:secret@slurm.example.org", "is not a valid slurmrestd URL"),
        ("https://slurm.example.org/?token=x", "is not a valid slurmrestd URL"),
        ("ftp://slurm.example.org", "is not a valid slurmrestd URL"),
        ("https://[::1", "is not a valid slurmrestd URL"),
        ("https://999.1.1.1", "is not a valid slurmrestd URL"),
        ("https://xn--a.org", "is not a valid slurmrestd URL"),
        ("slurm.example.org:6820", "is not a valid slurmrestd URL"),
        ("unix:socket", "must contain an absolute path of printable characters"),
    ],
)
def test_invalid_slurmrestd_url_is_rejected_with_the_reason(url: str, message: str) -> None:
    assert problems(rest_url=url) == {"rest_url": message}


@pytest.mark.parametrize(
    "url", ["http://[::1]:6820", "http://localhost:6820/", "https://slurm.example.org/api"]
)
def test_valid_slurmrestd_url_is_accepted(url: str) -> None:
    assert problems(rest_url=url) == {}


def test_settings_that_slurmrestd_does_not_support_are_rejected() -> None:
    assert problems(rest_user=None, partition=None) == {
        "rest_user": "is required with rest_url", "partition": "is required with rest_url",
    }  # fmt: skip
    assert problems(bin="/opt/slurm/bin", options=["--nice=10"]) == {
        "bin": "conflicts with rest_url", "options": "is not available with rest_url",
    }  # fmt: skip
    assert problems(rest_url=None) == {"rest_user": "has no effect without rest_url"}
    for ca in ("certificate", "é", " "):
        assert problems(rest_ca=ca) == {"rest_ca": "is not a valid PEM certificate"}


def problems(**settings: Any) -> dict[str, str]:
    values = {"partition": "gpu", "rest_url": "https://slurm.example.org", "rest_user": USER, **settings}
    try:
        slurm_settings({name: value for name, value in values.items() if value is not None})
    except Invalid as error:
        return {each.path.removeprefix("provider_settings."): each.message for each in error.problems}
    return {}


def test_token_is_read_from_the_output_of_scontrol() -> None:
    token = token_expiring_at(now())
    assert [parse_token(text) for text in (f"SLURM_JWT={token}\n", token)] == [token, token]
    assert [parse_token(text) for text in ("", "a.b", f"{token}\n{token}", f"{token}\r\nX-Other: 1")] == [
        None
    ] * 4
    assert token_expiry(token) == now()
    assert [token_expiry(text) for text in (TOKEN, "a.b.c", "a.W10.c", "")] == [None] * 4
