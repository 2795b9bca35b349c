"""How often the 95 % intervals of evaluations hold the truth."""
