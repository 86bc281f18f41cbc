"""What is measured: the limits of the machine, and the doors beside them."""
