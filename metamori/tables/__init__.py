"""Pure tables: descriptors (FIT), files (PIF), interval maps (AML), recency, history. No I/O, no clock."""
