"""Plugin for the Hugging Face libraries. If it has a token, it also logs in on each node."""

from typing import Annotated

from pools.plugins.base import Operation, Plugin
from pools.plugins.facts import Cluster
from pools.plugins.image import Image
from pools.plugins.parameters import Secret

TOKEN = "HF_TOKEN"  # noqa: S105 - a variable's name
# Do not use `hf auth login --token`, because every user of the machine can see a command's arguments.
LOGIN = f"""python -c 'import os; from huggingface_hub import login; login(token=os.environ["{TOKEN}"])'"""


def huggingface(
    *, token: Annotated[str, Secret(TOKEN, "Access token of huggingface.co, for private models")] = ""
) -> Plugin:
    """transformers, datasets and tokenizers.

    With a token, HF_TOKEN is set and nodes are logged in. The token is a secret.
    """
    has_token = bool(token)

    def transform(image: Image, cluster: Cluster) -> Image:
        image = image.with_pip("transformers", "datasets", "tokenizers")
        return image.with_secrets(TOKEN) if has_token else image

    def bootstrap(cluster: Cluster) -> tuple[Operation, ...]:
        return (Operation(LOGIN, "huggingface login"),) if has_token else ()

    return Plugin.create("huggingface").with_transform(transform).with_bootstrap(bootstrap)
