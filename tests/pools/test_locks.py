"""Tests for transactions that must not block each other."""

from threading import Thread

import pytest
from django.db import connection, transaction

from pools import services
from pools.models import Node
from pools.models.node import NodeState
from pools.reconciler.rows import lock_pool
from projects.actor import Actor
from tests.factories import node, pool


@pytest.mark.django_db(transaction=True)
def test_node_can_be_cordoned_while_its_pool_is_being_reconciled() -> None:
    # The pass locks the node next, so the cordon must not wait for the pool lock.
    locked_node = node(pool())
    errors: list[Exception] = []

    def cordon() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '2s'")
            services.cordon_node(actor=Actor.system("tests"), node=Node.objects.get(pk=locked_node.pk))
        except Exception as error:
            errors.append(error)
        finally:
            connection.close()

    with transaction.atomic():
        lock_pool(locked_node.pool_id)
        thread = Thread(target=cordon)
        thread.start()
        thread.join()
    locked_node.refresh_from_db()
    assert (errors, locked_node.state) == ([], NodeState.CORDONED)
