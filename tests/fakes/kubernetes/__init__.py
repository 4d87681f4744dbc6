"""A Kubernetes API server in this process, with a scheduler and nodes that behave as tests tell them."""

from tests.fakes.kubernetes.cluster import FakeCluster
from tests.fakes.kubernetes.server import serve

__all__ = ["FakeCluster", "serve"]
