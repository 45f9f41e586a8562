"""What must hold in every run, whatever the scenario."""
