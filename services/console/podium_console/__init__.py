"""The console: pages in a browser about what trains, as one more client of the API."""
