"""Browser test data: a booting node."""

from pools.models import NodePool
from pools.services import edit_pool
from projects.actor import Actor
from tests import factories as make


def create_booting_node(train: NodePool) -> None:
    edit_pool(actor=Actor.system("scene"), pool=train, changes={
        "plugins": ["torch", {"name": "huggingface", "parameters": {"token": "hf_of_a_scene"}}],
        "environment": {"python": "3.12", "pip": ["numpy>=2"], "env": {"NCCL_DEBUG": "WARN"}},
    })  # fmt: skip
    train.refresh_from_db()
    phases = [
        {"phase": "apt", "state": "done", "seconds": 4, "message": ""},
        {"phase": "python", "state": "done", "seconds": 2, "message": ""},
        {"phase": "pip", "state": "running", "seconds": 0, "message": ""},
    ]
    make.node(
        train, 3, state="booting", since=make.ago(seconds=40), created_at=make.ago(seconds=49),
        ready_at=make.ago(seconds=-200),
        environment=train.built_environment, phases=phases,
    )  # fmt: skip
