"""What order groups train in, and what that costs: the controller's loop over a stub engine."""
