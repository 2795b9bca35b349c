"""Domain types and rules: no gRPC, no Kubernetes, no SQL."""
