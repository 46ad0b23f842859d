"""Back-tests of rules."""
