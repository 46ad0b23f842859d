"""The choice of delay and lateness."""
