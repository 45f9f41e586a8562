"""What is known of a step without simulating it: from its program, or from what the stages of a pipeline cost."""
