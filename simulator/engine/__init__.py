"""What runs a replication, whichever engine does it: its draws, and the statistics that are kept of it."""
