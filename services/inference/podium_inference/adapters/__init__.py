"""vLLM, the registry's files and the pool's other pods."""
