"""What a user's function sees, and what is kept for each of its keys."""
