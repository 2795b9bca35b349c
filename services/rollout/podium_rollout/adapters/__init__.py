"""The policy and remote environments, over gRPC."""
