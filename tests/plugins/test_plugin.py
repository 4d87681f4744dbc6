"""Tests for single plugins and combinations of plugins."""

import dataclasses
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pools.plugins import (
    Cluster,
    Hook,
    HookContexts,
    HookFailed,
    Image,
    Index,
    InstanceInfo,
    Operation,
    Plugin,
    bootstrap_all,
    decorate_all,
    hook_contexts,
    transform_all,
)

ROOT = Path(__file__).resolve().parents[2]
TRAIN = Cluster("train", head_address="10.0.0.1", node_count=4, gpus_per_node=8, gpu_model="H100", cuda=True)
HOOKS = ("transform", "bootstrap", "decorate", "around_app", "around_process", "around_client")


def installing_plugin(name: str) -> Plugin:
    return Plugin.create(name).with_transform(lambda image, cluster: replace(image, pip=(*image.pip, name)))


def failing_plugin(*args: object) -> Any:
    raise ValueError("no such thing")


def recording_plugin(events: list[str], name: str, *, enter: bool = True, leave: bool = True) -> Plugin:
    @contextmanager
    def around(*facts: object) -> Iterator[None]:
        if not enter:
            raise RuntimeError(f"{name} does not begin")
        events.append(f"+{name}")
        try:
            yield
        finally:
            events.append(f"-{name}")
            if not leave:
                raise RuntimeError(f"{name} does not end well")

    created = Plugin.create(name).with_around_app(around).with_around_process(around)
    return created.with_around_client(around)


@pytest.mark.shows("PLG-02", "PLG-03")
def test_plugin_has_a_name_and_six_optional_hooks() -> None:
    bare = Plugin("bare")
    assert [getattr(bare, hook) for hook in HOOKS] == [None] * 6
    with pytest.raises(dataclasses.FrozenInstanceError):
        bare.name = "other"  # type: ignore[misc]


@pytest.mark.shows("PLG-31")
def test_plugin_builder_methods_return_new_plugins() -> None:
    seen = [Plugin.create("stepwise")]
    for hook in HOOKS:
        seen.append(getattr(seen[-1], f"with_{hook}")(failing_plugin))
        assert getattr(seen[-1], hook) is failing_plugin
        assert getattr(seen[-2], hook) is None
    assert {plugin.name for plugin in seen} == {"stepwise"}


@pytest.mark.shows("PLG-06", "PLG-09")
def test_transform_changes_neither_its_input_nor_other_fields() -> None:
    before = Image("3.12", ("numpy",), (Index("https://example.org", ("numpy",)),), ("git",), {"A": "1"})
    after = transform_all([installing_plugin("torch")], before, TRAIN)
    assert before.pip == ("numpy",)
    assert after == replace(before, pip=("numpy", "torch"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        after.pip = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        after.env["A"] = "2"  # type: ignore[index]


@pytest.mark.shows("PLG-04", "PLG-05")
def test_transform_gets_the_pool_and_may_add_every_kind_of_package() -> None:
    def everything(image: Image, cluster: Cluster) -> Image:
        image = image.with_pip("jax").with_index("https://example.org/cuda", "jaxlib").with_apt("libnuma1")
        return image.with_env(POOL=cluster.name, NODES=str(cluster.node_count))

    after = transform_all([Plugin.create("all").with_transform(everything)], Image(), TRAIN)
    assert after.to_dict() == {
        "python": "", "pip": ["jax"],
        "indexes": [{"url": "https://example.org/cuda", "packages": ["jaxlib"]}],
        "apt": ["libnuma1"], "env": {"NODES": "4", "POOL": "train"}, "secrets": [],
    }  # fmt: skip


@pytest.mark.shows("PLG-07", "PLG-47")
@pytest.mark.parametrize("kind", [list, tuple])
def test_plugin_transforms_run_in_the_listed_order(kind: Callable[[Any], Any]) -> None:
    plugins = kind([installing_plugin("second"), installing_plugin("first")])
    assert transform_all(plugins, Image(pip=("zero",)), TRAIN).pip == ("zero", "second", "first")


def test_existing_packages_and_variables_are_not_added_to_an_image_twice() -> None:
    image = Image(pip=("torch==2.9",)).with_pip("torch==2.9", "numpy").with_default_env(A="1")
    assert image.with_default_env(A="2") == Image(pip=("torch==2.9", "numpy"), env={"A": "1"})


@pytest.mark.shows("PLG-10", "PLG-12")
def test_operations_are_appended_in_order_and_labelled_with_their_plugin() -> None:
    one = Plugin.create("one").with_bootstrap(lambda cluster: (Operation(f"echo {cluster.name}"),))
    two = Plugin.create("two").with_bootstrap(lambda _: (Operation("true", "warm up"), Operation("false")))
    assert bootstrap_all([two, one], TRAIN) == (
        Operation("true", "warm up"), Operation("false", "two"), Operation("echo train", "one"),
    )  # fmt: skip


@pytest.mark.shows("PLG-14", "PLG-15", "PLG-16")
def test_first_decorator_is_outermost_and_may_change_arguments_and_result() -> None:
    def around(name: str) -> Plugin:
        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda text, **more: f"{name}({function(text + name, **more)})"

        return Plugin.create(name).with_decorate(decorate)

    def work(text: str, end: str) -> str:
        return text + end

    assert decorate_all([], work) is work
    assert decorate_all([installing_plugin("none")], work) is work
    assert decorate_all([around("a"), around("b")], work)("<", end=">") == "a(b(<ab>))"
    early = Plugin.create("early").with_decorate(lambda _: lambda *args, **kwargs: "early")
    assert decorate_all([early, around("b")], failing_plugin)("<", end=">") == "early"


@pytest.mark.shows("PLG-48")
def test_plugin_without_the_hook_is_skipped() -> None:
    bare = Plugin("bare")
    assert transform_all([bare], Image(), TRAIN) == Image()
    assert bootstrap_all([bare], TRAIN) == ()
    for hook in Hook:
        with hook_contexts([bare], hook, InstanceInfo()) as record:
            assert record.names == ()


@pytest.mark.shows("PLG-19", "PLG-24", "PLG-25")
@pytest.mark.parametrize("hook", [Hook.AROUND_APP, Hook.AROUND_PROCESS])
def test_hook_contexts_are_entered_once_in_order_and_exited_in_reverse_order(hook: Hook) -> None:
    events: list[str] = []
    plugins, record = [recording_plugin(events, "b"), recording_plugin(events, "a")], HookContexts(hook)
    for _ in range(3):
        record.enter(plugins, InstanceInfo())
    assert events == ["+b", "+a"]
    assert record.names == ("b", "a")
    assert record.leave() == ()
    assert events == ["+b", "+a", "-a", "-b"]
    assert record.leave() == ()


@pytest.mark.shows("PLG-27", "PLG-28")
def test_failed_client_start_exits_the_contexts_already_entered() -> None:
    events: list[str] = []
    with hook_contexts(
        [recording_plugin(events, "a"), recording_plugin(events, "b")], Hook.AROUND_CLIENT, None, TRAIN
    ):
        assert events == ["+a", "+b"]
    assert events == ["+a", "+b", "-b", "-a"]
    events.clear()
    third = recording_plugin(events, "c", enter=False)
    with (
        pytest.raises(HookFailed, match=r"^the plugin c failed in around_client: RuntimeError: c does not"),
        hook_contexts(
            [recording_plugin(events, "a"), recording_plugin(events, "b"), third],
            Hook.AROUND_CLIENT,
            None,
            TRAIN,
        ),
    ):
        pytest.fail("the block must not run")
    assert events == ["+a", "+b", "-b", "-a"]


@pytest.mark.shows("PLG-29")
def test_failed_exit_of_a_hook_context_is_logged_and_other_contexts_still_exit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[str] = []
    record = HookContexts(Hook.AROUND_PROCESS)
    record.enter(
        [
            recording_plugin(events, "a"),
            recording_plugin(events, "b", leave=False),
            recording_plugin(events, "c"),
        ],
        InstanceInfo(),
    )
    (failure,) = record.leave()
    assert events == ["+a", "+b", "+c", "-c", "-b", "-a"]
    assert (failure.plugin, failure.hook) == ("b", "around_process")
    assert "b does not end well" in caplog.text


def test_hook_context_may_be_entered_again_after_a_failure() -> None:
    events: list[str] = []
    record = HookContexts(Hook.AROUND_APP)
    record.enter([recording_plugin(events, "a")], InstanceInfo())
    with pytest.raises(HookFailed):
        record.enter(
            [recording_plugin(events, "b"), recording_plugin(events, "c", enter=False)], InstanceInfo()
        )
    assert list(record.names) == ["a"]
    record.enter(
        [recording_plugin(events, "a"), recording_plugin(events, "b"), recording_plugin(events, "c")],
        InstanceInfo(),
    )
    assert record.names == ("a", "b", "c")


def test_error_in_the_wrapped_code_reaches_the_hook_contexts_and_propagates() -> None:
    events: list[str] = []
    with (
        pytest.raises(ZeroDivisionError),
        hook_contexts([recording_plugin(events, "a")], Hook.AROUND_CLIENT, None, TRAIN),
    ):
        _ = 1 // 0
    assert events == ["+a", "-a"]


@pytest.mark.parametrize("hook", ["transform", "bootstrap", "decorate"])
def test_error_names_the_failing_hook_and_its_plugin(hook: str) -> None:
    plugins = [getattr(Plugin.create("bad"), f"with_{hook}")(failing_plugin)]
    use: dict[str, Callable[[], object]] = {
        "transform": lambda: transform_all(plugins, Image(), TRAIN),
        "bootstrap": lambda: bootstrap_all(plugins, TRAIN),
        "decorate": lambda: decorate_all(plugins, print),
    }
    with pytest.raises(HookFailed) as failure:
        use[hook]()
    assert str(failure.value) == f"the plugin bad failed in {hook}: ValueError: no such thing"
    assert isinstance(failure.value.__cause__, ValueError)


def test_invalid_return_value_of_a_hook_is_reported() -> None:
    for hook, use in {
        "transform": lambda plugins: transform_all(plugins, Image(), TRAIN),
        "bootstrap": lambda plugins: bootstrap_all(plugins, TRAIN),
        "decorate": lambda plugins: decorate_all(plugins, print),
    }.items():
        plugin = getattr(Plugin.create("bad"), f"with_{hook}")(lambda *args: ["sudo"])
        with pytest.raises(
            HookFailed, match=f"the plugin bad failed in {hook}: returned (list|str) instead of "
        ):
            use([plugin])


def test_plugin_values_sent_between_processes_can_be_pickled() -> None:
    image = Image("3.12", ("numpy",), (Index("https://example.org"),), env={"A": "1"})
    failure = HookFailed("torch", "around_process", "OSError: no port")
    again = pickle.loads(pickle.dumps((image, InstanceInfo(2, 4), failure)))
    assert (again[0], again[1], str(again[2])) == (image, InstanceInfo(2, 4), str(failure))


def test_ranks_are_numbered_node_by_node() -> None:
    assert (InstanceInfo(2, 4).rank, InstanceInfo(2, 4).world_size) == (2, 4)
    fifth = InstanceInfo(2, 4, worker_index=1, workers_per_node=2)
    assert (fifth.rank, fifth.world_size, fifth.is_head) == (5, 8, False)


def test_importing_plugins_does_not_import_django() -> None:
    names = [f"pools.plugins.{path.stem}" for path in (ROOT / "pools" / "plugins").glob("[!_]*.py")]
    code = (
        f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\n"
        "heavy = {'django', 'rest_framework', 'psycopg', 'httpx', 'torch', 'jax', 'joblib', 'cloudpickle'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
