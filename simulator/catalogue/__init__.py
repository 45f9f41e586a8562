"""Reads scenarios and the files that they name, and sets keys by dotted name; ``simulator.base.catalog`` says where files are looked up."""
