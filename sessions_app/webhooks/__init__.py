"""Who is told of what happens: endpoints, deliveries, and their transport."""
