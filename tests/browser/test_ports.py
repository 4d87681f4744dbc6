"""Claims about opening a port in a real browser: the page works, and it reaches nothing of Berth's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from playwright.sync_api import Browser, expect

from projects.models import Phase, Workload
from tests import factories as make
from tests.browser.chromium import reader
from tests.browser.scene import Scene
from tests.browser.site import serving
from tests.visits.pod import Pod, served

RIDE = """async (berth) => {
  const told = [];
  for (const [path, options] of [["/workloads", {}], ["/logout", {method: "POST"}]]) {
    try {
      const answer = await fetch(berth + path, {credentials: "include", ...options});
      told.push(answer.status);
    } catch (error) { told.push("refused"); }
  }
  try { new WebSocket(berth.replace("http", "ws") + "/ws/live").onmessage = () => told.push("heard"); }
  catch (error) { told.push("no socket"); }
  await new Promise((done) => setTimeout(done, 300));
  return told.concat(document.cookie);
}"""


@pytest.fixture
def pod() -> Iterator[tuple[Pod, int]]:
    server = Pod()
    with served(server) as port:
        yield server, port


@pytest.fixture
def desk(scene: Scene, pod: tuple[Pod, int]) -> Workload:
    workload = make.workload(
        scene.projects["robotics"], "desk", by=scene.people["bert"], kind="interactive", pools=["train"],
        phase=Phase.RUNNING, run=1, started_at=make.ago(minutes=5), message="1 of 1 pods run.",
    )  # fmt: skip
    workload.spec = {**workload.spec, "kind": "interactive", "ports": [{"name": "lab"}]}
    workload.save()
    placed = make.place(workload, make.node(scene.pools["train"], 9), [0])
    placed.ports = {"lab": {"address": "127.0.0.1", "port": pod[1]}}
    placed.save()
    return workload


@pytest.fixture
def address(
    transactional_db: None, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A server of this test's own, that has hosts for ports."""
    url = postgres.replace("/berth?", f"/{connection.settings_dict['NAME']}?")
    with serving(url, tmp_path, hosts_for_ports=True) as found:
        yield found


def test_a_port_opens_from_the_workloads_page_and_its_page_stays_apart_from_berth(
    browser: Browser, address: str, scene: Scene, desk: Workload, pod: tuple[Pod, int]
) -> None:
    with reader(browser, address, scene.people["bert"], beyond=(".localhost",)) as (page, faults):
        page.goto(f"/workloads/{desk.pk}")
        with page.context.expect_page() as opened:
            page.get_by_role("button", name="Open lab").click()
        inside = opened.value
        expect(inside.locator("#what")).to_have_text("you said hello")
        assert inside.url == f"http://{desk.pk.hex}-lab.localhost:{address.rpartition(':')[2]}/"
        assert inside.evaluate("document.referrer") == ""
        told = inside.evaluate(RIDE, address)
        assert told == ["refused", "refused", ""], "nothing is read, nothing done, nobody's cookie seen"
        assert "sessionid" not in str(pod[0].heard)
        page.reload()
        expect(page.get_by_role("heading", name="desk", level=1)).to_be_visible()
        assert not [fault for fault in faults if "lab" in fault]


def test_what_was_opened_once_does_not_open_for_the_next_who_has_the_link(
    browser: Browser, address: str, scene: Scene, desk: Workload
) -> None:
    with reader(browser, address, scene.people["bert"], beyond=(".localhost",)) as (page, _):
        page.goto(f"/workloads/{desk.pk}")
        with (
            page.context.expect_page() as opened,
            page.context.expect_event("request", lambda request: "/.berth/open/" in request.url) as asked,
        ):
            page.get_by_role("button", name="Open lab").click()
        expect(opened.value.locator("#what")).to_have_text("you said hello")
        link = asked.value.url
    with reader(browser, address, None, beyond=(".localhost",)) as (page, _):
        page.goto(link)
        expect(page.get_by_role("heading", name="Open this port from Berth")).to_be_visible()
