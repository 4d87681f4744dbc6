"""Tests for the built-in plugins, alone and together."""

import os
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from pools.plugins import (
    Cluster,
    Hook,
    HookContexts,
    Image,
    InstanceInfo,
    Plugin,
    bootstrap_all,
    hook_contexts,
    transform_all,
)
from pools.plugins.builtin import (
    ALL,
    accelerate,
    cuml,
    huggingface,
    jax,
    joblib,
    keras,
    mig,
    mps,
    sklearn,
    torch,
)

CUDA = Cluster("train", node_count=4, gpus_per_node=8, gpu_model="H100", cuda=True)
PLAIN = Cluster("cpus", node_count=2)
SECOND = InstanceInfo(node_index=1, node_count=4, head_address="10.0.0.1", head_port=29500, gpus=1)
SINGLE_INSTANCE = InstanceInfo()
HOOKS = ("transform", "bootstrap", "decorate", "around_app", "around_process", "around_client")
TABLE = {
    "accelerate": {"transform", "around_process"},
    "torch": {"transform", "around_process"},
    "jax": {"transform", "around_process"},
    "keras": {"transform", "around_process"},
    "huggingface": {"transform", "bootstrap"},
    "joblib": {"transform", "decorate", "around_client"},
    "sklearn": {"transform", "decorate", "around_client"},
    "cuml": {"transform", "around_process"},
    "mps": {"transform", "bootstrap"},
    "mig": {"bootstrap"},
}


def build_image(*plugins: Plugin, cluster: Cluster = CUDA) -> Image:
    return transform_all(plugins, Image(), cluster)


class RecordedCalls(list[tuple[str, Any]]):
    """A replacement for a package that is not installed. It records calls to the package."""

    def module(self, monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> types.ModuleType:
        module = types.ModuleType(name)
        for member, value in members.items():
            setattr(module, member, value)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    def recorder(self, name: str) -> Any:
        return lambda *args, **kwargs: self.append((name, kwargs or args))


@pytest.fixture
def calls() -> RecordedCalls:
    return RecordedCalls()


@pytest.fixture
def fake_torch(calls: RecordedCalls, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedCalls]:
    group: list[str] = []

    def begin(backend: str, *, rank: int, world_size: int) -> None:
        group.append(backend)
        calls.append(("init", (backend, rank, world_size, os.environ["MASTER_ADDR"])))

    def end() -> None:
        group.clear()
        calls.append(("destroy", ()))

    distributed = calls.module(
        monkeypatch, "torch.distributed", is_initialized=lambda: bool(group), init_process_group=begin,
        destroy_process_group=end,
    )  # fmt: skip
    cuda = calls.module(
        monkeypatch, "torch.cuda", is_available=lambda: True, device_count=lambda: 8,
        set_device=calls.recorder("device"),
    )  # fmt: skip
    calls.module(monkeypatch, "torch", distributed=distributed, cuda=cuda)
    return iter([calls])


@pytest.mark.shows("PLG-32", "PLG-35", "PLG-36")
def test_ten_built_in_plugins_have_the_documented_hooks() -> None:
    made = {name: make(**({"profiles": "1g.10gb"} if name == "mig" else {})) for name, make in ALL.items()}
    assert {name: {hook for hook in HOOKS if getattr(plugin, hook)} for name, plugin in made.items()} == TABLE
    assert {plugin.name for plugin in made.values()} == set(TABLE)


@pytest.mark.shows("PLG-37")
def test_torch_installs_the_wheels_for_the_pools_gpus() -> None:
    index = build_image(torch(cuda="12.8", version="2.9.1", extras=("torchvision",))).indexes[0]
    assert index.url == "https://download.pytorch.org/whl/cu128"
    assert set(index.packages) == {"torch", "torchvision", "torchaudio"}
    assert build_image(torch(version="2.9.1", extras=("torchvision",))).pip == ("torch==2.9.1", "torchvision")
    assert build_image(torch(), cluster=PLAIN).indexes[0].url == "https://download.pytorch.org/whl/cpu"
    assert build_image(torch(index="default"), cluster=PLAIN).indexes == ()


@pytest.mark.shows("PLG-37")
def test_torch_creates_and_destroys_one_process_group(fake_torch: Iterator[RecordedCalls]) -> None:
    calls = next(fake_torch)
    with hook_contexts([torch(backend="nccl")], Hook.AROUND_PROCESS, SECOND):
        assert os.environ["RANK"] == "1"
        assert calls == [("device", (0,)), ("init", ("nccl", 1, 4, "10.0.0.1"))]
    assert calls[-1] == ("destroy", ())
    assert "RANK" not in os.environ
    del calls[:]
    with hook_contexts([torch()], Hook.AROUND_PROCESS, InstanceInfo(node_index=1, node_count=2)):
        assert calls == [("init", ("gloo", 1, 2, "127.0.0.1"))]


@pytest.mark.shows("PLG-38")
def test_accelerate_uses_the_torch_process_group(fake_torch: Iterator[RecordedCalls]) -> None:
    calls = next(fake_torch)
    with hook_contexts([torch(), accelerate(mixed_precision="bf16")], Hook.AROUND_PROCESS, SECOND):
        assert [name for name, _ in calls].count("init") == 1
        assert (os.environ["ACCELERATE_MIXED_PRECISION"], os.environ["RANK"]) == ("bf16", "1")


@pytest.mark.shows("PLG-38")
@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        (accelerate(mixed_precision="fp16"), {"ACCELERATE_MIXED_PRECISION": "fp16"}),
        (accelerate(fsdp=True), {"ACCELERATE_USE_FSDP": "true", "WORLD_SIZE": "1"}),
        (
            accelerate(fsdp_config={"fsdp_sharding_strategy": "SHARD_GRAD_OP", "offload_params": True}),
            {"ACCELERATE_USE_FSDP": "true", "FSDP_SHARDING_STRATEGY": "SHARD_GRAD_OP",
             "FSDP_OFFLOAD_PARAMS": "true"},
        ),
        (
            accelerate(fsdp={"fsdp_transformer_layer_cls_to_wrap": "Block"}, fsdp_config={"version": 2}),
            {"FSDP_TRANSFORMER_CLS_TO_WRAP": "Block", "FSDP_VERSION": "2"},
        ),
        (
            accelerate(deepspeed={"zero_stage": 3}, deepspeed_config={"gradient_clipping": 1.0}),
            {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
             "ACCELERATE_GRADIENT_CLIPPING": "1.0"},
        ),
    ],
)  # fmt: skip
def test_accelerate_accepts_both_key_names_and_works_on_one_node(
    plugin: Plugin, expected: dict[str, str]
) -> None:
    before = dict(os.environ)
    with hook_contexts([plugin], Hook.AROUND_PROCESS, SINGLE_INSTANCE):
        assert {name: os.environ.get(name) for name in expected} == expected
    assert dict(os.environ) == before


@pytest.mark.shows("PLG-38")
def test_accelerate_installs_deepspeed_if_configured() -> None:
    assert build_image(accelerate()).pip == ("accelerate",)
    assert build_image(accelerate(deepspeed_config={"zero_stage": 2})).pip == ("accelerate", "deepspeed")
    with pytest.raises(ValueError, match="mutually exclusive"):
        accelerate(fsdp=True, deepspeed=True)


@pytest.mark.shows("PLG-39")
def test_jax_is_installed_with_its_extra_and_initialized_on_all_workers(
    calls: RecordedCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build_image(jax()).pip == ("jax[cuda13]",)
    assert build_image(jax(cuda="12", version="0.10.2")).pip == ("jax[cuda12]==0.10.2",)
    assert build_image(jax(), cluster=PLAIN).pip == ("jax",)
    both = calls.module(
        monkeypatch, "jax.distributed", initialize=calls.recorder("begin"), shutdown=calls.recorder("end")
    )
    calls.module(monkeypatch, "jax", distributed=both)
    with hook_contexts([jax()], Hook.AROUND_PROCESS, SECOND):
        arguments = {"coordinator_address": "10.0.0.1:29501", "num_processes": 4, "process_id": 1}
        assert calls == [("begin", arguments)]
    assert calls[-1] == ("end", ())
    del calls[:]
    with hook_contexts([jax()], Hook.AROUND_PROCESS, SINGLE_INSTANCE):
        assert calls == []


@pytest.mark.shows("PLG-34", "PLG-40")
def test_keras_sets_up_distribution_after_jax_is_initialized(
    calls: RecordedCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = build_image(jax(), keras())
    assert (image.pip, image.env["KERAS_BACKEND"]) == (("jax[cuda13]", "keras>=3", "jax"), "jax")
    assert build_image(keras(backend="torch")).env["KERAS_BACKEND"] == "torch"
    both = calls.module(
        monkeypatch, "jax.distributed", initialize=calls.recorder("jax"), shutdown=calls.recorder("jax ends")
    )
    calls.module(monkeypatch, "jax", distributed=both)
    spread = calls.module(
        monkeypatch, "keras.distribution", DataParallel=lambda: "all devices",
        set_distribution=calls.recorder("keras"),
    )  # fmt: skip
    calls.module(monkeypatch, "keras", distribution=spread)
    record = HookContexts(Hook.AROUND_PROCESS)
    record.enter([jax(), keras()], SECOND)
    assert [name for name, _ in calls] == ["jax", "keras"]
    assert calls[1] == ("keras", ("all devices",))
    record.leave()
    assert [name for name, _ in calls] == ["jax", "keras", "keras", "jax ends"]


@pytest.mark.shows("PLG-41")
def test_huggingface_logs_in_without_storing_the_token() -> None:
    plugin = huggingface(token="hf_verysecret")
    image, operations = build_image(plugin), bootstrap_all([plugin], CUDA)
    assert image.pip == ("transformers", "datasets", "tokenizers")
    assert image.secrets == ("HF_TOKEN",)
    assert [operation.title for operation in operations] == ["huggingface login"]
    assert "huggingface_hub import login" in operations[0].script
    assert "verysecret" not in f"{image} {operations} {image.to_dict()}"
    assert (build_image(huggingface()).secrets, bootstrap_all([huggingface()], CUDA)) == ((), ())


@pytest.mark.shows("PLG-42", "PLG-43")
def test_joblib_and_sklearn_use_the_clients_session() -> None:
    assert build_image(joblib()).pip == ("joblib",)
    assert build_image(sklearn()).pip == ("scikit-learn", "joblib")

    class Session:
        opened = 0

        def parallel(self) -> Any:
            return self

        def __enter__(self) -> None:
            self.opened += 1

        def __exit__(self, *error: object) -> None:
            self.opened -= 1

    for plugin in (joblib(), sklearn()):
        session = Session()
        with hook_contexts([plugin], Hook.AROUND_CLIENT, session, CUDA):
            assert session.opened == 1
        assert session.opened == 0


def test_session_with_the_joblib_plugin_opens_without_joblib_in_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for plugin in (joblib(), sklearn()):
        with hook_contexts([plugin], Hook.AROUND_CLIENT, object(), CUDA):
            pass


@pytest.mark.shows("PLG-44")
def test_cuml_accelerates_processes_that_have_a_gpu(
    calls: RecordedCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build_image(cuml(cuda="12")).pip == ("cuml-cu12", "scikit-learn")
    assert build_image(cuml(), cluster=PLAIN).pip == ("scikit-learn",)
    accel = calls.module(monkeypatch, "cuml.accel", install=calls.recorder("install"))
    calls.module(monkeypatch, "cuml", accel=accel)
    with hook_contexts([cuml()], Hook.AROUND_PROCESS, SINGLE_INSTANCE):
        assert calls == []
    with hook_contexts([cuml()], Hook.AROUND_PROCESS, SECOND):
        assert calls == [("install", ())]


@pytest.mark.shows("PLG-45")
def test_mps_sets_variables_and_starts_its_daemon_on_gpu_nodes() -> None:
    plugin = mps(thread_percentage=50, memory_limit="0=8G")
    assert dict(build_image(plugin).env) == {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8G",
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps", "CUDA_MPS_LOG_DIRECTORY": "/tmp/nvidia-mps-log",
    }  # fmt: skip
    (operation,) = bootstrap_all([plugin], CUDA)
    assert operation.script.endswith("nvidia-cuda-mps-control -d")
    assert (build_image(plugin, cluster=PLAIN), bootstrap_all([plugin], PLAIN)) == (Image(), ())


def test_mig_partitions_unpartitioned_gpus() -> None:
    (operation,) = bootstrap_all([mig(profiles="3g.40gb,3g.40gb")], CUDA)
    assert "-cgi 3g.40gb,3g.40gb -C" in operation.script
    assert bootstrap_all([mig(profiles="19")], PLAIN) == ()


@pytest.mark.shows("PLG-33")
def test_plugins_are_combined_into_one_environment() -> None:
    image = build_image(torch(), huggingface(token="t"))
    assert image.pip == ("torch", "transformers", "datasets", "tokenizers")
    assert image.indexes[0].packages[0] == "torch"
    assert image.secrets == ("HF_TOKEN",)
    operations = bootstrap_all([torch(), huggingface(token="t")], CUDA)
    assert [operation.title for operation in operations] == ["huggingface login"]
