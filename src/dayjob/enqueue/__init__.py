"""Enqueueing, sync and async. Read `enqueuer`, `builder`, `sender`, `request` in this order."""
