"""From what a person wrote to what is simulated: devices, measured defaults, draws, and the program of a step."""
