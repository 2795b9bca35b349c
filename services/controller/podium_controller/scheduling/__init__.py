"""Which job runs when."""
