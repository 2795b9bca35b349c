"""vLLM's OpenAI HTTP API, with keys, policies' names and capture."""
