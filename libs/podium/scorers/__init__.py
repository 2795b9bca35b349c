"""A function that scores groups, served over HTTP for jobs: `podium scorer serve`."""
