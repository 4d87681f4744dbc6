"""Browser test data: secrets of one project and one pool."""

from typing import Any

from django.utils import timezone

from pools.services.secrets import SecretContent, set_pool_secret
from projects.services.secrets import set_project_secret
from tests.browser.data.requests import acting


def create_secrets(scene: Any) -> None:
    ada, carol = (acting(scene.people[name]) for name in ("ada", "carol"))
    login = SecretContent("password", "registry.example.org:5000/vision", "robot-of-the-vision-team")
    for name, content in (("hf-token", SecretContent("hf_token")), ("registry", login)):
        set_project_secret(
            actor=carol, project=scene.projects["vision"], name=name, content=content, at=timezone.now()
        )
    for name, content in (
        ("wandb-api-key", SecretContent("key")),
        ("hub", SecretContent("password", "docker.io", "berth")),
    ):
        set_pool_secret(actor=ada, pool=scene.pools["train"], name=name, content=content, at=timezone.now())
