"""What the newest OpenHands packages ask of a server, compared with docs/compatibility.md."""
