"""The controller's three services: what callers ask is checked, done and answered."""
