"""Running: threads and the event loop that call handlers."""
