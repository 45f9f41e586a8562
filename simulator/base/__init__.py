"""What the rest of the simulator stands on: errors, text, tables, units, files, records, random streams, bases of specifications."""
