"""What each kind of runtime does with a pod beyond running its command."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Abilities:
    """`runs_images`: pods run in the container image that their workload names. `enforces_limits`: a pod
    cannot use more CPU or memory than its role's limit."""

    runs_images: bool = False
    enforces_limits: bool = False


# By `NodePool.runtime`. Local and Ray pods are processes on the host, without a container around them.
ABILITIES: Mapping[str, Abilities] = {"local": Abilities(), "ray": Abilities(), "fake": Abilities()}


def abilities_of(runtime: str) -> Abilities:
    return ABILITIES[runtime]
