"""Actors for the test data. Their changes have request IDs, like changes made through the API."""

from uuid import NAMESPACE_URL, uuid5

from django.contrib.auth.models import User

from projects.actor import Actor


def acting(user: User) -> Actor:
    return Actor.for_user(user, request_id=uuid5(NAMESPACE_URL, user.username).hex)
