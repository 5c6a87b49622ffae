"""Programs that do the same work, each run in a process and an environment of its own."""
