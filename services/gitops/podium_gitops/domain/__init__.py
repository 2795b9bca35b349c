"""What a TrainingJob asks for, and how its status is written: no cluster, no gRPC."""
