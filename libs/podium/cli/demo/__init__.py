"""`make demo`: a real model learns the email search through the six services, on a laptop."""
