"""Events, files and rows that tests start from, and faults in them."""
