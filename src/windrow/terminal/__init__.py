"""What commands share: options, errors, interrupts, progress and tables."""
