"""How much each user may use, and has used."""
