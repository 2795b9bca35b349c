"""The trainer on a GPU machine that has Python, torch and Transformers and nothing of Podium."""
