"""What judging a group costs in tokens, beside ART's RULER."""
