"""An environment behind `podium.environment.v1`."""
