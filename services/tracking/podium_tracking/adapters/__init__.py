"""The clients of the trackers, secrets, and worker processes."""
