"""Templates and secrets of the scene's projects and pools."""

from typing import Any

from tests.browser.data.project_templates import create_templates
from tests.browser.data.secrets import create_secrets


def create_project_contents(scene: Any) -> None:
    create_templates(scene)
    create_secrets(scene)
