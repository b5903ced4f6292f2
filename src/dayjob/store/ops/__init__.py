"""The operations, as values: what to send and how to read the answer. Pure functions, no I/O."""
