"""The inference service: one vLLM engine, many policies of one base model."""
