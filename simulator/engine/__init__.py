"""What runs a program: draws, engines, and what they measure."""
