"""Chaos: real processes under seeded faults, with a ledger that shows what became of every job."""
