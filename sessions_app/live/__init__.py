"""What readers are told while they are connected, and what is known of them."""
