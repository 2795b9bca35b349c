"""The rollout service: environment times policy gives trajectories."""
