"""What a person writes: the parts of a scenario, each with its keys, units and rules."""
