"""What chat services give their users when these ask for their data: one huge file of conversations."""
