"""Where the services are, and channels to them."""
