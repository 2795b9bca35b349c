"""Words and rules of a job that everything else here uses; no SQL, gRPC or Kubernetes."""
