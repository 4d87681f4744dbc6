"""A fake Kubernetes API server in this process, with a scheduler and nodes that tests control."""

from tests.fakes.kubernetes.cluster import FakeCluster
from tests.fakes.kubernetes.server import serve

__all__ = ["FakeCluster", "serve"]
