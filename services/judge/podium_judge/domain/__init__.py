"""RULER, weighted criteria and how scores are joined; no transport."""
