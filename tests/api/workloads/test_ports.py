"""Tests for links to workload ports."""

import re
from collections.abc import Callable

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from projects.models import Phase, PortLink, Workload
from projects.port_proxy.links import load_port_origins
from projects.port_proxy.origins import Origins, parse_origins
from tests.api.conftest import Caller
from tests.cast import Cast

INTERACTIVE_DOCUMENT = {
    "name": "desk", "project": "vision", "pools": ["local"], "kind": "interactive",
    "ports": [{"name": "lab"}], "roles": [{"name": "desk", "gpu": 1}], "command": "true",
}  # fmt: skip


@pytest.fixture
def interactive_workload(dave: Caller, settings: Settings) -> str:
    settings.BERTH_APPS_ORIGIN = "https://*.apps.example.org"
    workload_id: str = dave.post("workloads", INTERACTIVE_DOCUMENT).json()["id"]
    Workload.objects.filter(pk=workload_id).update(phase=Phase.RUNNING, run=1, started_at=timezone.now())
    return f"workloads/{workload_id}/ports/lab/link"


def test_links_to_different_ports_have_different_host_names(dave: Caller, interactive_workload: str) -> None:
    answer = dave.post(interactive_workload)
    assert answer.status_code == 201
    link = answer.json()
    assert re.fullmatch(r"https://[0-9a-f]{32}-lab\.apps\.example\.org/\.berth/open/[\w-]{43}", link["url"])
    assert link["expires_at"] > timezone.now().isoformat()[:19]
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.heavy
def test_every_request_creates_a_new_link_despite_the_idempotency_key(
    dave: Caller, interactive_workload: str
) -> None:
    urls = {dave.post(interactive_workload, Idempotency_Key="once").json()["url"] for _ in range(2)}
    assert len(urls) == PortLink.objects.count() == 2, "a stored response would store the secret"


def test_viewer_gets_403_and_users_of_other_projects_get_404(
    erin: Caller, caller: Callable[..., Caller], interactive_workload: str
) -> None:
    assert erin.post(interactive_workload).status_code == 403
    assert caller("grace").post(interactive_workload).status_code == 404


def test_invalid_port_link_requests_are_rejected(dave: Caller, interactive_workload: str) -> None:
    assert dave.post(interactive_workload.replace("/lab/", "/nowhere/")).status_code == 404
    Workload.objects.update(phase=Phase.PENDING)
    assert dave.post(interactive_workload).status_code == 409
    assert dave.post(interactive_workload, {"port": 5432}).status_code == 422


@pytest.mark.heavy
def test_error_names_the_setting_if_no_apps_origin_is_configured(
    dave: Caller, interactive_workload: str, settings: Settings
) -> None:
    settings.BERTH_APPS_ORIGIN = ""
    answer = dave.post(interactive_workload)
    assert answer.status_code == 409
    assert "BERTH_APPS_ORIGIN" in answer.json()["detail"]
    assert not PortLink.objects.exists()


@pytest.mark.heavy
def test_port_can_be_opened_from_the_workload_page(
    cast: Cast, interactive_workload: str, client: Client
) -> None:
    workload_id = interactive_workload.split("/")[1]
    client.force_login(cast.dave.user)
    assert (
        f'action="/workloads/{workload_id}/ports/lab"'
        in client.get(f"/workloads/{workload_id}").content.decode()
    )
    page = client.post(f"/workloads/{workload_id}/ports/lab")
    assert '<meta http-equiv="refresh" content="0; url=https://' in page.content.decode()
    assert page.headers["Referrer-Policy"] == "no-referrer"
    client.force_login(cast.erin.user)
    assert "/ports/lab" not in client.get(f"/workloads/{workload_id}").content.decode()
    assert client.post(f"/workloads/{workload_id}/ports/lab").status_code == 403


@pytest.mark.parametrize("text", [
    "https://apps.example.org", "ftp://*.x", "*.apps.example.org", "https://*.*.org", "https://*.", "https://*.x/y",
    "https://a:b@*.x", "https://a*.x",
])  # fmt: skip
def test_invalid_apps_origin_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must look like"):
        parse_origins(text)


def test_only_valid_host_names_are_resolved_to_a_port() -> None:
    hosts = parse_origins("https://*.apps.example.org")
    assert hosts == Origins("https", ".apps.example.org", 443)
    key = "0" * 31 + "1"
    assert hosts.parse_host(f"{key}-lab.apps.example.org") is not None
    assert hosts.parse_host(f"{key.upper()}-lab.APPS.example.org:443") is not None
    for other in (
        "apps.example.org", f"{key}.apps.example.org", f"{key}-lab.evil.org", f"{key}--.apps.example.org",
        f"x.{key}-lab.apps.example.org", f"{key}-lab.apps.example.org.evil.org",
    ):  # fmt: skip
        assert hosts.parse_host(other) is None, other


def test_invalid_apps_origin_prevents_startup(settings: Settings) -> None:
    settings.BERTH_APPS_ORIGIN = "https://apps.example.org"
    with pytest.raises(ImproperlyConfigured, match="BERTH_APPS_ORIGIN must look like"):
        load_port_origins()
