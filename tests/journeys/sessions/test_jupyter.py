"""Test JupyterLab through Berth with the shipped example.

Installing the package takes minutes, as on the nodes of a pool, so `make test-heavy` runs this test.
"""

import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.driver.chromium import PROGRAM, chromium, reader
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import ROOT, Installation, until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1500), pytest.mark.browser]
PATIENCE = 1200.0


@pytest.fixture(scope="module")
def link(berth: Installation) -> str:
    """Return the link that `berth open` prints once JupyterLab is listening."""
    admin = sign_in(berth, "admin", berth.home.parent / "admin")
    dave = sign_in(berth, "dave", berth.home.parent / "dave")
    shape = "--nodes 0:1 --gpus-per-node 1 --cpu 2 --memory 4Gi --pip jupyterlab"
    admin.berth("pool", "create", "notebooks", *shape.split())
    for owner in (["research", "--department"], ["vision"]):
        amounts = "--pool notebooks --gpu 1 --cpu 2 --memory 4096"
        admin.berth("quota", "set", *owner, *amounts.split())
    example = str(ROOT / "examples" / "jupyter.yaml")
    workload_id = dave.json("submit", "-p", "vision", "-f", example)["id"]
    _wait(dave, workload_id)
    return dave.berth("open", "lab", "--print").strip()


def _wait(dave: Terminal, workload_id: str) -> None:
    with dave.client() as client:
        until(lambda: client.workloads.get(workload_id).phase in ("running", "failed"), PATIENCE)
        until(lambda: b"is running at" in client.workloads.log(workload_id).data, 120)


@pytest.mark.skipif(not Path(PROGRAM).exists(), reason=f"{PROGRAM} is not installed")
def test_jupyter_notebook_runs_code_through_a_port_link(link: str) -> None:
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(link))
    with chromium() as browser, reader(browser, origin, None) as (page, faults):
        page.set_default_timeout(60_000)
        page.goto(link)
        expect(page).to_have_title("JupyterLab", timeout=60_000)
        expect(page.locator(".jp-LauncherCard").first).to_be_visible(timeout=60_000)
        answer = page.evaluate(RUN_A_CELL, str(uuid.uuid4()))
        assert answer == "42", "a kernel was started over HTTP and answered over its WebSocket"
        assert not [fault for fault in faults if "elsewhere" in fault]


RUN_A_CELL = """async (session) => {
  const made = await fetch("/api/kernels", {method: "POST", body: JSON.stringify({name: "python3"})});
  if (!made.ok) return `no kernel: ${made.status} ${await made.text()}`;
  const kernel = (await made.json()).id;
  const socket = new WebSocket(`ws://${location.host}/api/kernels/${kernel}/channels?session_id=${session}`);
  await new Promise((done, failed) => { socket.onopen = done; socket.onerror = failed; });
  const header = {msg_id: crypto.randomUUID?.() ?? session, msg_type: "execute_request", username: "",
                  session, version: "5.3", date: new Date().toISOString()};
  socket.send(JSON.stringify({header, parent_header: {}, metadata: {}, channel: "shell", buffers: [],
    content: {code: "6 * 7", silent: false, store_history: true, user_expressions: {},
              allow_stdin: false, stop_on_error: true}}));
  return await new Promise((done) => {
    socket.onmessage = (event) => {
      const reply = JSON.parse(event.data);
      if (reply.msg_type === "execute_result") done(reply.content.data["text/plain"]);
      if (reply.msg_type === "error") done(reply.content.evalue);
    };
    setTimeout(() => done("nothing came"), 60000);
  });
}"""
