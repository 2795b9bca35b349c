"""Rules and ports: what is told, and to whom."""
