"""What lies and runs on this machine: the model cache and child processes."""
