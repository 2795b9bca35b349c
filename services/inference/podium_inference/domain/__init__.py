"""Policies, captures and prompts; no vLLM and no gRPC."""
