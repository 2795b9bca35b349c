"""The training loop of one job."""
