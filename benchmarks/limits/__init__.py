"""What the machine can do by itself: engines and bare servers, beside which the doors are measured."""
