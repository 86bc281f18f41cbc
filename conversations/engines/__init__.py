"""What the two databases need from us, each in its own way: files, upgrades, failures in words."""
