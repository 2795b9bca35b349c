"""Measurements: see the README beside this file."""
