"""What every service is built with: gRPC, telemetry, SQL, the registry's client."""
