"""Trainers on Kubernetes: the only package of Podium that knows the `kubernetes` client."""
