"""Tests for slurmrestd in the forms of Slurm pools."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from pools.joining.sealed import unseal
from pools.models import NodePool
from tests.cast import Cast
from tests.fakes.slurm import FakeSlurm
from tests.fakes.slurm.rest import TOKEN, USER, FakeSlurmRest, serve
from tests.web.conftest import SignIn
from tests.web.pools.test_pool_form import EC2_POOL
from tests.web.test_forms import errors

HTMX = {"HX-Request": "true"}


@pytest.fixture
def alice(cast: Cast, sign_in: SignIn) -> Client:
    return sign_in("alice")


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[FakeSlurmRest]:
    with serve(FakeSlurmRest(FakeSlurm(tmp_path / "slurm"))) as running:
        yield running


@pytest.fixture
def form_values(rest: FakeSlurmRest) -> dict[str, str]:
    common = {name: value for name, value in EC2_POOL.items() if not name.startswith("aws_")}
    return {
        **common, "name": "hpc", "provider": "slurm", "runtime": "", "slurm_rest_url": rest.url,
        "slurm_rest_user": USER, "slurm_token": f"SLURM_JWT={TOKEN}", "slurm_partition": "gpu",
        "slurm_gres": "gpu", "slurm_notice_lead": "10m", "slurm_exclusive": "on",
        "slurm_directory": "~/.berth", "slurm_time_limit": "23h",
    }  # fmt: skip


def test_form_stores_the_token_and_never_shows_it(alice: Client, form_values: dict[str, str]) -> None:
    assert alice.post("/node-pools/new", form_values, headers=HTMX).status_code == 204
    pool = NodePool.objects.get(name="hpc")
    assert unseal(pool.slurm_token_sealed) == TOKEN
    page = alice.get("/node-pools/hpc/settings").content.decode()
    assert form_values["slurm_rest_url"] in page
    assert 'name="slurm_token"' in page
    assert TOKEN not in page
    edited = {**form_values, "slurm_token": "", "slurm_time_limit": "12h", "version": str(pool.version)}
    assert alice.post("/node-pools/hpc/settings", edited, headers=HTMX).status_code == 204
    pool.refresh_from_db()
    assert pool.provider_settings["time_limit"] == "12h"
    assert unseal(pool.slurm_token_sealed) == TOKEN, "an empty field keeps the token"


@pytest.mark.parametrize(
    "change", [{"slurm_rest_url": "https://other.example.org"}, {"slurm_rest_user": "eve"}]
)
def test_token_is_not_sent_to_another_address_or_as_another_user(
    alice: Client, form_values: dict[str, str], change: dict[str, str]
) -> None:
    assert alice.post("/node-pools/new", form_values, headers=HTMX).status_code == 204
    edited = {**form_values, "slurm_token": "", "version": "1", **change}
    response = alice.post("/node-pools/hpc/settings", edited, headers=HTMX)
    assert "again when the address or user changes" in " ".join(errors(response)["slurm_token"])
    assert (
        alice.post("/node-pools/hpc/settings", edited | {"slurm_token": TOKEN}, headers=HTMX).status_code
        == 204
    )


def test_pool_that_stops_using_slurmrestd_loses_its_token(alice: Client, form_values: dict[str, str]) -> None:
    assert alice.post("/node-pools/new", form_values, headers=HTMX).status_code == 204
    edited = {**form_values, "slurm_token": "", "slurm_rest_url": "", "slurm_rest_user": "", "version": "1"}
    assert alice.post("/node-pools/hpc/settings", edited, headers=HTMX).status_code == 204
    assert NodePool.objects.get(name="hpc").slurm_token_sealed == ""


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"slurm_token": ""}, "slurm_token", "required with slurmrestd url"),
        ({"slurm_token": "secret"}, "slurm_token", "enter a valid slurm token."),
        ({"slurm_rest_url": "http://slurm.example.org"}, "slurm_rest_url", "unencrypted connection"),
        ({"slurm_rest_user": ""}, "slurm_rest_user", "required with slurmrestd url"),
        ({"slurm_rest_ca": "my CA"}, "slurm_rest_ca", "not a valid pem certificate"),
        ({"slurm_partition": ""}, "slurm_partition", "required with slurmrestd url"),
        ({"slurm_rest_url": "", "slurm_rest_user": ""}, "slurm_token", "has no effect without"),
    ],
)
def test_error_for_an_invalid_value_is_shown_next_to_its_field(
    alice: Client, form_values: dict[str, str], changes: dict[str, str], field: str, message: str
) -> None:
    response = alice.post("/node-pools/new", {**form_values, **changes}, headers=HTMX)
    shown = " ".join(errors(response)[field])
    assert message in shown.lower()
    assert "secret" not in shown
    assert not NodePool.objects.filter(name="hpc").exists()
