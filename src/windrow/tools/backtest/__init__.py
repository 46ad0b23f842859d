"""Back-testing of rules."""
