"""Tests of the app: what is enqueued, when, and what it does. Run them with `manage.py test`."""

from django.test import TestCase
from mail.models import Message

from dayjob.django import pool
from dayjob.testing import testing
from orders.models import Order


class OrderTests(TestCase):
    """No test here needs a Redis server."""

    def test_an_order_is_shipped_and_the_customer_gets_a_mail(self):
        """The test's own transaction is never committed; captureOnCommitCallbacks stands for the commit."""
        with testing(pool) as jobs:
            with self.captureOnCommitCallbacks(execute=True):
                self.client.post("/orders/?email=ada@example.com")
            jobs.assert_enqueued("orders.ship")
            with self.captureOnCommitCallbacks(execute=True):
                jobs.drain()
            jobs.drain()
        self.assertTrue(Order.objects.get().shipped)
        self.assertEqual(Message.objects.get().to, "ada@example.com")

    def test_a_refused_order_enqueues_nothing(self):
        """The transaction is rolled back, and its job with it."""
        with testing(pool) as jobs, self.captureOnCommitCallbacks(execute=True) as callbacks:
            self.client.post("/orders/?email=ada@example.com&refuse")
        self.assertEqual(callbacks, [])
        jobs.assert_not_enqueued("orders.ship")
        self.assertFalse(Order.objects.exists())
