"""The pages of the shop."""

import asyncio

from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from orders.jobs import ship
from orders.models import Order


class Refused(Exception):
    """The order is not accepted, and its transaction is rolled back."""


def _save(email: str, *, refuse: bool) -> Order:
    with transaction.atomic():
        order = Order.objects.create(email=email)
        # Sent when the transaction is committed, and never if it is not.
        ship.enqueue(order.pk)
        if refuse:
            raise Refused
    return order


@csrf_exempt
def place(request: HttpRequest) -> JsonResponse:
    """Place an order."""
    try:
        order = _save(request.GET["email"], refuse="refuse" in request.GET)
    except Refused:
        return JsonResponse({"order": None}, status=409)
    return JsonResponse({"order": order.pk})


@csrf_exempt
async def place_async(request: HttpRequest) -> JsonResponse:
    """Place an order in an async view: without a transaction the job is sent at once."""
    order = await Order.objects.acreate(email=request.GET["email"])
    job = await ship.aenqueue(order.pk)
    await asyncio.sleep(0)
    count = await sync_to_async(Order.objects.count)()
    return JsonResponse({"order": order.pk, "job": job.id, "orders": count})
