"""Tests for outputs on the workload page."""

from pathlib import Path
from typing import Any

import pytest

from projects.models import PodOutputs
from tests import factories as make
from tests.api.workloads.test_outputs import leave_outputs
from tests.cast import Cast
from tests.web.conftest import SignIn


@pytest.fixture(autouse=True)
def code_store(settings: Any, tmp_path: Path) -> None:
    settings.BERTH_CODE_STORE = str(tmp_path / "code")


def test_outputs_tab_lists_files_and_previews_text(cast: Cast, sign_in: SignIn) -> None:
    workload = make.workload(cast.vision, "train", phase="completed", run=1)
    node = make.node(cast.pool, gpus=2)
    pods = [make.place(workload, node, [device], index=device) for device in (0, 1)]
    files = {"results/a.txt": b"<b>loss</b> \x1b[31m0.5\x1b[0m\n", "results/model.bin": b"\0"}
    leave_outputs(pods[0], files)
    PodOutputs.objects.create(pod=pods[1], paths=["results"], state="failed", message="The node is gone.")
    client, path = sign_in("dave"), f"/workloads/{workload.pk}/outputs"
    text = client.get(path).content.decode()
    assert "The node is gone." in text and "x is odd and was not stored." in text
    assert text.count(">Download file</a>") == 2
    assert "pod=worker-0&amp;run=1&amp;path=results%2Fmodel.bin" in text
    assert text.count(">Preview</a>") == 1
    preview = client.get(path, {"pod": str(pods[0].pk), "path": "results/a.txt"}).content.decode()
    assert "<pre>&lt;b&gt;loss&lt;/b&gt; 0.5\n</pre>" in preview
    for query in ({"path": "results/model.bin"}, {"path": "none.txt"}, {"pod": "x"}):
        assert "<pre>" not in client.get(path, query).content.decode()


@pytest.mark.heavy
def test_outputs_tab_without_outputs_explains_how_to_declare_them(cast: Cast, sign_in: SignIn) -> None:
    workload = make.workload(cast.vision, "train")
    assert "No outputs declared" in sign_in("dave").get(f"/workloads/{workload.pk}/outputs").content.decode()
    workload.spec = {**workload.spec, "outputs": ["results"]}
    workload.save(update_fields=["spec"])
    assert "No outputs yet" in sign_in("dave").get(f"/workloads/{workload.pk}/outputs").content.decode()
