"""What the trainer costs, beside what it could cost: see bench/README.md."""
