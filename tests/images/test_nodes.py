"""Tests for nodes that can run images, and for the reasons why other nodes cannot."""

import json
from pathlib import Path

import pytest

from pools.runtimes.base import PodCause
from pools.runtimes.images import probe
from pools.runtimes.images.cdi import cdi_devices
from pools.runtimes.images.container_spec import PullSettings, pull_fields
from pools.runtimes.local import LocalRuntime
from tests.contracts.pods import ended, order
from tests.images.stage import image_home

IMAGE = "r.example/team/train@sha256:" + "0" * 64


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalRuntime:
    monkeypatch.setenv("BERTH_IMAGES", "auto")
    return LocalRuntime(tmp_path / "home" / "run", anchor="")


def obstacle(runtime: LocalRuntime) -> str:
    isolation = runtime.get_isolation(["i-0"])["i-0"]
    assert isolation.images == ""
    return isolation.images_obstacle


def test_node_that_supports_images_reports_its_podman_version(first_runtime: LocalRuntime) -> None:
    isolation = first_runtime.get_isolation(["i-0"])["i-0"]
    assert isolation.images[0].isdecimal()
    assert isolation.images_obstacle == ""
    assert isolation.level == first_runtime.isolation.level


def test_operator_can_disable_images(runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_IMAGES", "off")
    assert obstacle(runtime) == "BERTH_IMAGES is off."
    runtime.start(order("p-1", "true", image=IMAGE))
    report = ended(runtime, "p-1")
    assert report.cause is PodCause.START_FAILED
    assert report.message == "this node cannot run images: BERTH_IMAGES is off."
    runtime.start(order("p-2", "true"))
    assert ended(runtime, "p-2").exit_code == 0


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("BERTH_IMAGES", "yes", "BERTH_IMAGES is 'yes'. Use auto or off."),
        ("BERTH_IMAGE_CACHE_MIB", "-5", "BERTH_IMAGE_CACHE_MIB is '-5'. Use a positive number of MiB."),
        ("BERTH_IMAGE_CACHE_MIB", "many", "BERTH_IMAGE_CACHE_MIB is 'many'. Use a positive number of MiB."),
    ],
)
def test_error_names_the_invalid_image_setting(
    runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name, **_: f"/usr/bin/{name}")
    monkeypatch.setenv(name, value)
    assert obstacle(runtime) == text


def test_agent_run_by_an_unprivileged_user_does_not_support_images(
    runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert probe.probe_images(
        runtime._enclosures.images.store, runtime.root, runtime._enclosures._shim
    ).obstacle == "Container images require an agent that runs as root."  # fmt: skip


def test_missing_programs_are_reported_with_a_remedy(
    runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.isolation  # noqa: B018 - bubblewrap is tried before programs disappear
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name, **_: None)
    text = obstacle(runtime)
    assert text.startswith(
        "podman, conmon and catatonit are not installed. Install podman, runc and catatonit"
    )
    assert "apt-get install podman runc catatonit" in text


@pytest.mark.usefixtures("first_runtime")
def test_machine_that_cannot_run_containers_reports_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BERTH_IMAGES", "auto")
    monkeypatch.setattr(probe, "_find_runtime", lambda environ: "missing-runtime")
    with image_home(tmp_path / "home") as runtime:
        text = obstacle(runtime)
    assert text.startswith("podman cannot run containers on this machine: ")
    assert "missing-runtime" in text


def test_pod_spec_contains_no_credentials() -> None:
    secret = json.dumps({"auths": {"r.example": {"auth": "c2VjcmV0"}}})
    pod = order("p-1", "true", image=IMAGE, registry_auth=secret)
    assert "c2VjcmV0" not in str(pull_fields(pod, PullSettings(0), {}))
    assert "c2VjcmV0" not in repr(pod)
    fields = pull_fields(pod, PullSettings(5, (1.0,), 2.0), {"HTTPS_PROXY": "http://proxy", "OTHER": "x"})
    assert ("podman_env", "HTTPS_PROXY=http://proxy") in fields
    assert not any("OTHER" in value for _, value in fields)


def test_gpus_have_the_device_names_that_the_machine_specifies(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits: {}\n"
        "- name: GPU-1a2b\n  containerEdits: {}\n"
    )  # fmt: skip
    (tmp_path / "other.json").write_text('{"kind": "example.com/gpu", "devices": [{"name": "7"}]}')
    assert cdi_devices(("0", "GPU-1a2b"), [tmp_path]) == ("nvidia.com/gpu=0", "nvidia.com/gpu=GPU-1a2b")
    assert cdi_devices(("0", "7"), [tmp_path]) == (), "one of them is not specified"
    assert cdi_devices((), [tmp_path]) == ()
    assert cdi_devices(("0",), [tmp_path / "missing"]) == ()
