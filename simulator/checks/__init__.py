"""What must hold in every program and every run, whatever the scenario."""
