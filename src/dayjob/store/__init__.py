"""Access to Redis: keys, scripts, requests and connections. Nothing here knows handlers or the worker."""
