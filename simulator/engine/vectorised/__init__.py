"""Programs whose ranks meet in collectives alone, as arrays over all ranks."""
