"""Status: what a pool publishes about itself."""
