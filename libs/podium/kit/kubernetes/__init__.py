"""The calls of the Kubernetes API that services share."""
