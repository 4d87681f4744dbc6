"""Claims about the address that opens a port: who gets a link, and what it looks like."""

import re
from collections.abc import Callable

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from projects.models import Phase, PortLink, Workload
from projects.visits.links import hosts_for_ports
from projects.visits.origins import Origins, origins
from tests.api.conftest import Caller
from tests.cast import Cast

DESK = {
    "name": "desk", "project": "vision", "pools": ["local"], "kind": "interactive",
    "ports": [{"name": "lab"}], "roles": [{"name": "desk", "gpu": 1}], "command": "true",
}  # fmt: skip


@pytest.fixture
def desk(dave: Caller, settings) -> str:
    settings.BERTH_APPS_ORIGIN = "https://*.apps.example.org"
    found: str = dave.post("workloads", DESK).json()["id"]
    Workload.objects.filter(pk=found).update(phase=Phase.RUNNING, run=1, started_at=timezone.now())
    return f"workloads/{found}/ports/lab/link"


def test_a_link_leads_to_a_host_of_the_ports_own(dave: Caller, desk: str) -> None:
    answer = dave.post(desk)
    assert answer.status_code == 201
    told = answer.json()
    assert re.fullmatch(r"https://[0-9a-f]{32}-lab\.apps\.example\.org/\.berth/open/[\w-]{43}", told["url"])
    assert told["expires_at"] > timezone.now().isoformat()[:19]
    assert answer.headers["Cache-Control"] == "no-store"


def test_each_call_is_another_link_also_with_the_same_key(dave: Caller, desk: str) -> None:
    urls = {dave.post(desk, Idempotency_Key="once").json()["url"] for _ in range(2)}
    assert len(urls) == PortLink.objects.count() == 2, "an answer that is kept would be a secret that is kept"


def test_who_only_sees_it_is_refused_and_others_find_nothing(
    erin: Caller, caller: Callable[..., Caller], desk: str
) -> None:
    assert erin.post(desk).status_code == 403
    assert caller("grace").post(desk).status_code == 404


def test_ports_and_workloads_that_are_not_there(dave: Caller, desk: str) -> None:
    assert dave.post(desk.replace("/lab/", "/nowhere/")).status_code == 404
    Workload.objects.update(phase=Phase.PENDING)
    assert dave.post(desk).status_code == 409
    assert dave.post(desk, {"port": 5432}).status_code == 422


def test_without_hosts_for_ports_the_refusal_says_what_to_set(dave: Caller, desk: str, settings) -> None:
    settings.BERTH_APPS_ORIGIN = ""
    answer = dave.post(desk)
    assert answer.status_code == 409
    assert "BERTH_APPS_ORIGIN" in answer.json()["detail"]
    assert not PortLink.objects.exists()


def test_the_page_of_a_workload_opens_its_ports(cast: Cast, desk: str, client) -> None:
    found = desk.split("/")[1]
    client.force_login(cast.dave.user)
    assert f'action="/workloads/{found}/ports/lab"' in client.get(f"/workloads/{found}").content.decode()
    page = client.post(f"/workloads/{found}/ports/lab")
    assert '<meta http-equiv="refresh" content="0; url=https://' in page.content.decode()
    assert page.headers["Referrer-Policy"] == "no-referrer"
    client.force_login(cast.erin.user)
    assert "/ports/lab" not in client.get(f"/workloads/{found}").content.decode()
    assert client.post(f"/workloads/{found}/ports/lab").status_code == 403


@pytest.mark.parametrize("text", [
    "https://apps.example.org", "ftp://*.x", "*.apps.example.org", "https://*.*.org", "https://*.", "https://*.x/y",
    "https://a:b@*.x", "https://a*.x",
])  # fmt: skip
def test_hosts_for_ports_are_written_in_one_way(text: str) -> None:
    with pytest.raises(ValueError, match="must look like"):
        origins(text)


def test_a_host_names_a_port_or_nothing() -> None:
    hosts = origins("https://*.apps.example.org")
    assert hosts == Origins("https", ".apps.example.org", 443)
    key = "0" * 31 + "1"
    assert hosts.port_of_host(f"{key}-lab.apps.example.org") is not None
    assert hosts.port_of_host(f"{key.upper()}-lab.APPS.example.org:443") is not None
    for other in (
        "apps.example.org", f"{key}.apps.example.org", f"{key}-lab.evil.org", f"{key}--.apps.example.org",
        f"x.{key}-lab.apps.example.org", f"{key}-lab.apps.example.org.evil.org",
    ):  # fmt: skip
        assert hosts.port_of_host(other) is None, other


def test_a_wrong_setting_is_told_when_the_server_starts(settings) -> None:
    settings.BERTH_APPS_ORIGIN = "https://apps.example.org"
    with pytest.raises(ImproperlyConfigured, match="BERTH_APPS_ORIGIN must look like"):
        hosts_for_ports()
