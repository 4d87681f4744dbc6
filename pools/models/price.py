"""Model of past GPU prices; the current price is on the pool."""

from django.db import models

from pools.models.pool import NodePool


class PoolPrice(models.Model):
    """A price that has passed. Null: none was known."""

    pool = models.ForeignKey(NodePool, on_delete=models.CASCADE, related_name="prices")
    until = models.DateTimeField()
    price_per_gpu_hour = models.DecimalField(max_digits=10, decimal_places=4, null=True)

    class Meta:
        ordering = ["pool", "until"]
        constraints = [models.UniqueConstraint(name="pool_price_once", fields=["pool", "until"])]

    def __str__(self) -> str:
        return f"{self.price_per_gpu_hour} until {self.until:%Y-%m-%d %H:%M}"
