"""The registry's versions, the team of processes, the machine."""
