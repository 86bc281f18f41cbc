"""How long conversations are kept: policies, purges of deleted ones, and all places from which a purge
removes them."""
