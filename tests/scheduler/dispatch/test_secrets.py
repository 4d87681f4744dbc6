"""Tests for the secrets of pods, whose values are read when the pod starts."""

from datetime import timedelta

import pytest
from django.utils import timezone

from pools.joining.sealed import seal
from pools.models import PluginSecret
from pools.runtimes import capabilities
from pools.runtimes.base import PodSpec
from pools.runtimes.capabilities import Capabilities
from pools.services.secrets import SecretContent
from projects.models import Phase, ProjectSecret, SecretUse, SecretValue, UserSecret, Workload
from projects.selectors import outdated_workload_counts, secret_uses
from projects.services import workloads
from projects.services.secrets import (
    delete_unused_values,
    set_personal_secret,
    set_project_secret,
    workload_maskers,
)
from tests.cast import training
from tests.scheduler.stage import Stage
from tests.support.crashes import killed_at

USES = [{"name": "token", "env": "HF_TOKEN"}, {"name": "token", "file": "token.txt"}]


def set_token(stage: Stage, value: str) -> None:
    set_project_secret(
        actor=stage.cast.carol, project=stage.cast.vision, name="token", content=SecretContent(value),
        at=timezone.now(),
    )  # fmt: skip


def find_order(stage: Stage, workload: Workload) -> PodSpec:
    return stage.runtime.order(str(stage.pods(workload, "starting", "running")[0].pk))


def kill_at(stage: Stage, name: str) -> None:
    """Run the scheduler until it dies at the crash point, and then start a new scheduler."""

    with killed_at(name):
        stage.tick(3)
    stage.loop = stage.new_loop()


@pytest.fixture
def workload(stage: Stage) -> Workload:
    set_token(stage, "first")
    return stage.submit(secrets=USES, restart_policy={"kind": "on_failure"})


def test_pod_receives_the_secrets_in_its_document(stage: Stage, workload: Workload) -> None:
    stage.tick(2)
    order = find_order(stage, workload)
    assert order.secret_env["HF_TOKEN"] == "first"
    assert order.secret_files == {"token.txt": "first"}
    assert "first" not in str(order), "a log of the order contains no secret"


def test_next_run_receives_the_changed_secret(stage: Stage, workload: Workload) -> None:
    stage.tick(2)
    set_token(stage, "second")
    assert find_order(stage, workload).secret_env["HF_TOKEN"] == "first"
    stage.finish(workload, exit_code=1)
    stage.tick(4, seconds=120)
    assert find_order(stage, workload).secret_env["HF_TOKEN"] == "second"


@pytest.mark.heavy
def test_only_pods_of_gangs_receive_a_gang_secret(stage: Stage) -> None:
    # Without a gang secret, the pod of a plain workload on Kubernetes starts with one call instead of two.
    alone = stage.submit("alone", roles=[{"name": "worker", "replicas": 1, "gpu": 1}])
    gang = stage.submit("gang", roles=[{"name": "worker", "replicas": 2, "gpu": 1}])
    elastic = stage.submit("elastic", kind="elastic", roles=[{"name": "worker", "min": 1, "max": 1}])
    stage.tick(2, seconds=10)
    received = {each.name: [*find_order(stage, each).secret_env] for each in (alone, gang, elastic)}
    assert received == {"alone": [], "gang": ["BERTH_GANG_SECRET"], "elastic": ["BERTH_GANG_SECRET"]}


def outdated(stage: Stage) -> list[tuple[int, int, bool]]:
    """Return (run, version, is outdated) for each use, newest first. A use is outdated while the run has an
    old version.
    """
    uses = secret_uses(stage.cast.dave, ProjectSecret.objects.get())
    return [(use.run, use.version, use.is_outdated) for use in uses]  # type: ignore[attr-defined]


def test_each_run_is_recorded_with_the_secret_version_that_it_received(
    stage: Stage, workload: Workload
) -> None:
    kill_at(stage, "dispatch.secret_uses")
    assert not stage.runtime.running(), "the use is recorded before the pod receives the secret"
    assert outdated(stage) == [(1, 1, False)]
    stage.tick(2)
    set_token(stage, "second")
    assert outdated(stage) == [(1, 1, True)]
    secret = ProjectSecret.objects.select_related("project").get()
    assert outdated_workload_counts(stage.cast.dave, [secret]) == {("project", "vision", "token"): 1}
    stage.finish(workload, exit_code=1)
    stage.tick(4, seconds=120)
    assert outdated(stage) == [(2, 2, False), (1, 1, False)]
    ProjectSecret.objects.all().delete()
    set_token(stage, "third")
    assert outdated(stage) == [(2, 2, True), (1, 1, False)], "a secret that was created again has changed"
    assert not secret_uses(stage.cast.frank, ProjectSecret.objects.get()).exists()


def test_older_secret_values_are_kept_as_long_as_the_runs_that_received_them(
    stage: Stage, workload: Workload
) -> None:
    set_token(stage, "former value")
    stage.tick(2)
    set_token(stage, "second value")
    ProjectSecret.objects.all().delete()
    masker = workload_maskers([workload.pk])[workload.pk]
    assert masker.mask(b"former value, second value") == b"************, second value"
    used_at = SecretValue.objects.get().used_at
    assert delete_unused_values(before=used_at + timedelta(seconds=1)) == 0
    SecretUse.objects.all().delete()
    assert delete_unused_values(before=used_at) == 0
    assert delete_unused_values(before=used_at + timedelta(seconds=1)) == 1


@pytest.mark.heavy
def test_secret_recreated_during_the_run_is_masked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    # The new secret has the name and version of the deleted one.
    def set_secrets(number: int) -> None:
        PluginSecret.objects.all().delete()
        ProjectSecret.objects.all().delete()
        set_token(stage, f"project-{number}")
        PluginSecret.objects.create(
            pool=stage.cast.pool, plugin="hub", parameter="token", variable="HUB_TOKEN",
            sealed=seal(f"plugin-{number}"), set_at=timezone.now(),
        )  # fmt: skip

    monkeypatch.setattr(
        "scheduler.loop.dispatch.starts.secrets.plugin_secrets",
        lambda pool, _: list(PluginSecret.objects.all()),
    )
    set_secrets(1)
    roles = [{"name": "worker", "min": 1, "max": 2, "gpu": 1}]
    workload = stage.submit(secrets=USES, kind="elastic", roles=roles)
    stage.tick(3)
    set_secrets(2)
    stage.runtime.end(str(stage.pods(workload, "running")[1].pk), cause="lost")  # type: ignore[arg-type]
    stage.tick(4, seconds=20)
    assert len(stage.pods(workload, "running")) == 2
    assert list(SecretUse.objects.values_list("run", "version").distinct().order_by()) == [(1, 1)]
    masker = workload_maskers([workload.pk])[workload.pk]
    assert masker.mask(b"project-1 project-2 plugin-1 plugin-2") == b"********* ********* ******** ********"


@pytest.mark.heavy
def test_use_of_image_credentials_and_plugin_secrets_is_recorded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        capabilities, "CAPABILITIES", {**capabilities.CAPABILITIES, "fake": Capabilities(runs_images=True)}
    )
    plugin_secret = PluginSecret.objects.create(
        pool=stage.cast.pool, plugin="hub", parameter="token", variable="HUB_TOKEN",
        sealed=seal("plugin-value"), set_at=timezone.now(),
    )  # fmt: skip
    monkeypatch.setattr(
        "scheduler.loop.dispatch.starts.secrets.plugin_secrets", lambda pool, _: [plugin_secret]
    )
    for name, registry in (("login", "ghcr.io"), ("other", "docker.io")):
        content = SecretContent("registry-password", registry=registry, username="vision")
        set_project_secret(
            actor=stage.cast.carol, project=stage.cast.vision, name=name, content=content, at=timezone.now()
        )
    stage.registries.digests["ghcr.io/org/train:1"] = f"sha256:{'1' * 64}"
    workload = stage.submit(image="ghcr.io/org/train:1", image_pull_policy="always")
    stage.tick(4)
    assert find_order(stage, workload).secret_env["HUB_TOKEN"] == "plugin-value"
    uses = SecretUse.objects.filter(workload=workload).order_by("name")
    assert list(uses.values_list("owner_kind", "owner", "name", "version")) == [
        ("pool", stage.cast.pool.name, "hub.token", 1), ("project", "vision", "login", 1),
    ]  # fmt: skip
    assert [use.workload_id for use in secret_uses(stage.cast.dave, plugin_secret)] == [workload.pk]
    masker = workload_maskers([workload.pk])[workload.pk]
    assert masker.mask(b"plugin-value registry-password") == b"************ *****************"


def test_pod_receives_its_submitters_personal_secret(stage: Stage) -> None:
    set_token(stage, "of the project")
    for actor, value in ((stage.cast.alice, "hers"), (stage.cast.dave, "his")):
        set_personal_secret(actor=actor, name="token", content=SecretContent(value), at=timezone.now())
    uses = [*USES, {"name": "token", "env": "MINE", "personal": True}]
    workload = workloads.submit(actor=stage.cast.dave, document=training("his", secrets=uses))
    stage.tick(2)
    secret_env = find_order(stage, workload).secret_env
    assert (secret_env["MINE"], secret_env["HF_TOKEN"]) == ("his", "of the project")
    (use,) = secret_uses(stage.cast.dave, UserSecret.objects.get(user=stage.cast.dave.user))
    assert (use.owner_kind, use.owner, use.run) == ("user", "dave", 1)


def test_workload_with_a_deleted_secret_fails_immediately_and_names_the_secret(
    stage: Stage, workload: Workload
) -> None:
    ProjectSecret.objects.all().delete()
    stage.tick(3)
    assert stage.phase(workload) == Phase.FAILED
    assert workload.reason == "SecretNotFound"
    assert workload.message.startswith("The secret token is neither in project vision nor in pool local.")
    assert not stage.pods(workload, "starting", "running", "stopping")


@pytest.mark.heavy
def test_workload_keeps_running_while_a_replacement_pod_waits_for_a_secret(stage: Stage) -> None:
    set_token(stage, "first")
    roles = [{"name": "worker", "min": 1, "max": 2, "gpu": 1}]
    workload = stage.submit(secrets=USES, kind="elastic", roles=roles)
    stage.tick(3)
    ProjectSecret.objects.all().delete()
    stage.runtime.end(str(stage.pods(workload, "running")[1].pk), cause="lost")  # type: ignore[arg-type]
    stage.tick(3)
    assert stage.phase(workload) == Phase.RUNNING
    assert len(stage.pods(workload, "running")) == 1
    [starting] = stage.pods(workload, "starting")
    assert starting.message.startswith("could not be started yet: The secret token is neither in")
    set_token(stage, "second")
    stage.tick(2, seconds=20)
    assert len(stage.pods(workload, "running")) == 2


def test_workload_with_a_deleted_secret_fails_even_if_the_scheduler_is_killed(
    stage: Stage, workload: Workload
) -> None:
    ProjectSecret.objects.all().delete()
    kill_at(stage, "dispatch.secrets")
    stage.tick(3)
    assert (stage.phase(workload), workload.reason) == (Phase.FAILED, "SecretNotFound")
