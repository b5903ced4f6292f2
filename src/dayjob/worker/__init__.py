"""Worker: fetches and runs jobs. Uses the store and the job definitions, never the console."""
