"""Watermarks: clocks of partitions, the adaptive delay, and the clock journal."""
