"""Fixtures for the services of projects: the cast, which the tests of a file share."""

from tests.shared_rows import cast, shared_cast

__all__ = ["cast", "shared_cast"]
