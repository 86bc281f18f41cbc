"""Events of one wire as events of the other."""
