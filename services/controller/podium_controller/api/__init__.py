"""JobService and SessionService: what callers ask is checked, done and answered."""
