"""The tracking service: tells jobs' numbers and episodes to W&B, Langfuse, MLflow and OpenPipe."""
