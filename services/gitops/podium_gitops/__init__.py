"""TrainingJob resources: what a repository says should train, by way of the same JobService."""
