"""The rollout service against a stub engine of fixed latency."""
