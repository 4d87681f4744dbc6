"""Fixtures for tests of project services: the cast, shared by the tests of a file."""

from tests.harness.shared_rows import cast, shared_cast

__all__ = ["cast", "shared_cast"]
