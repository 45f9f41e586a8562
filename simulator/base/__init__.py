"""The base of the simulator: errors, text, tables, units, files, records, random streams, bases of specifications."""
