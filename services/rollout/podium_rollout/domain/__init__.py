"""Episodes, groups and their token records; no transport."""
