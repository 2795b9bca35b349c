"""Real jobs that are sick on purpose, and healthy ones: what the coach says of each."""
