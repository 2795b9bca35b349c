"""What the controller costs a Kubernetes cluster."""
