"""What is known of a step without simulating it, read from its program."""
