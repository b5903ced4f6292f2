"""Jobs of the app `orders`. dayjob imports this module in every process of the project."""

from mail.jobs import send

from dayjob.django import pool
from orders.models import Order


@pool.job("orders.ship")
def ship(order_id: int) -> None:
    """Ship an order, and tell the customer."""
    order = Order.objects.get(pk=order_id)
    order.shipped = True
    order.save()
    send.enqueue(order.email, f"Order {order.pk} is on its way")


@pool.job("orders.report", keep=3600)
def report() -> dict[str, int]:
    """Count the orders; the result is kept for an hour."""
    return {"all": Order.objects.count(), "shipped": Order.objects.filter(shipped=True).count()}


pool.periodic("0 6 * * *", report)
