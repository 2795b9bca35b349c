"""`podium install`: what a cluster has, and the helm command that fits it."""
