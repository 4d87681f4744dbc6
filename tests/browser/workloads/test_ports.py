"""Browser tests for workload ports: their pages load and are isolated from Berth."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from projects.models import Phase, Workload
from tests import factories as make
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import reader
from tests.port_proxy.pod import Pod, served

ATTACK = """async (berth) => {
  const results = [];
  for (const [path, options] of [["/workloads", {}], ["/logout", {method: "POST"}]]) {
    try {
      const answer = await fetch(berth + path, {credentials: "include", ...options});
      results.push(answer.status);
    } catch (error) { results.push("refused"); }
  }
  try { new WebSocket(berth.replace("http", "ws") + "/ws/live").onmessage = () => results.push("heard"); }
  catch (error) { results.push("no socket"); }
  await new Promise((done) => setTimeout(done, 300));
  return results.concat(document.cookie);
}"""


@pytest.fixture
def pod() -> Iterator[tuple[Pod, int]]:
    server = Pod()
    with served(server) as port:
        yield server, port


@pytest.fixture
def interactive_workload(scene: Scene, pod: tuple[Pod, int]) -> Workload:
    workload = make.workload(
        scene.projects["robotics"], "desk", by=scene.people["bert"], kind="interactive", pools=["train"],
        phase=Phase.RUNNING, run=1, started_at=make.ago(minutes=5), message="1 of 1 pods running.",
    )  # fmt: skip
    workload.spec = {**workload.spec, "kind": "interactive", "ports": [{"name": "lab"}]}
    workload.save()
    placed = make.place(workload, make.node(scene.pools["train"], 9), [0])
    placed.ports = {"lab": {"address": "127.0.0.1", "port": pod[1]}}
    placed.save()
    return workload


def test_port_opened_from_the_workload_page_is_isolated_from_berth(
    browser: Browser, address: str, scene: Scene, interactive_workload: Workload, pod: tuple[Pod, int]
) -> None:
    with reader(browser, address, scene.people["bert"], allowed_hosts=(".localhost",)) as (page, faults):
        page.goto(f"/workloads/{interactive_workload.pk}")
        with page.context.expect_page() as opened:
            page.get_by_role("button", name="Open lab").click()
        inside = opened.value
        expect(inside.locator("#what")).to_have_text("you said hello")
        assert (
            inside.url == f"http://{interactive_workload.pk.hex}-lab.localhost:{address.rpartition(':')[2]}/"
        )
        assert inside.evaluate("document.referrer") == ""
        results = inside.evaluate(ATTACK, address)
        assert results == ["refused", "refused", ""], "no request is answered, and no cookie is visible"
        assert "sessionid" not in str(pod[0].heard)
        page.reload()
        expect(page.get_by_role("heading", name="desk", level=1)).to_be_visible()
        assert not [fault for fault in faults if "lab" in fault]


@pytest.mark.heavy
def test_port_link_cannot_be_reused_by_another_browser(
    browser: Browser, address: str, scene: Scene, interactive_workload: Workload
) -> None:
    with reader(browser, address, scene.people["bert"], allowed_hosts=(".localhost",)) as (page, _):
        page.goto(f"/workloads/{interactive_workload.pk}")
        with (
            page.context.expect_page() as opened,
            page.context.expect_event("request", lambda request: "/.berth/open/" in request.url) as request,
        ):
            page.get_by_role("button", name="Open lab").click()
        expect(opened.value.locator("#what")).to_have_text("you said hello")
        link = request.value.url
    with reader(browser, address, None, allowed_hosts=(".localhost",)) as (page, _):
        page.goto(link)
        expect(page.get_by_role("heading", name="Open this port from Berth")).to_be_visible()
