"""A program printed (``simulate --program``): summed up as tables and sentences for a reader, in full as rows for another program."""

from simulator.program.printing.listings import Listing, tables_of
from simulator.program.printing.printed import Printed, Reduced
from simulator.program.printing.rows import SCHEMA_VERSION, rows_of
from simulator.program.printing.sentences import sentences_of

__all__ = ["SCHEMA_VERSION", "Listing", "Printed", "Reduced", "rows_of", "sentences_of", "tables_of"]
