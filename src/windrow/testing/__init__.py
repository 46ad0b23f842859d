"""What a test of a pipeline needs: stories, an oracle, logs made at random."""
