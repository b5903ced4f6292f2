"""Enqueueing: build a job, send it, confirm it; sync and async."""
