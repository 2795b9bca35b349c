"""What the console shows, as plain values: no HTTP, no gRPC."""
