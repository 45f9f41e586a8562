"""What every room stands on: errors, text, tables, units, files, the base of specifications, records and random streams."""
