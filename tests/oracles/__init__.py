"""What must hold of schedules, programs and runs, told apart from the code that makes them; tests alone use it."""
