"""Files that people name: where they are found, how they are read, and keys set by dotted name."""
