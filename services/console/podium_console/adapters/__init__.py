"""What reaches the world: the services of the installation, and the HTTP port."""
