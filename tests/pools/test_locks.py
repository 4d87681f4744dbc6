"""Transactions that must not wait for each other."""

from threading import Thread

import pytest
from django.db import connection, transaction

from pools import services
from pools.models import Node
from pools.models.node import NodeState
from pools.reconciler.rows import locked
from projects.acting import Acting
from tests.factories import node, pool


@pytest.mark.django_db(transaction=True)
def test_a_node_is_cordoned_while_a_pass_holds_its_pool() -> None:
    """The pass wants the node next; the one who has the node must not want the pool."""
    made = node(pool())
    trouble: list[Exception] = []

    def cordon() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '2s'")
            services.cordon_node(acting=Acting.system("tests"), node=Node.objects.get(pk=made.pk))
        except Exception as error:
            trouble.append(error)
        finally:
            connection.close()

    with transaction.atomic():
        locked(made.pool_id)
        person = Thread(target=cordon)
        person.start()
        person.join()
    made.refresh_from_db()
    assert (trouble, made.state) == ([], NodeState.CORDONED)
