"""Everything that knows Redis, and nothing that knows jobs' handlers or threads' roles."""
