"""Predictions of tables that others published, from their smallest rows and facts about the hardware."""
