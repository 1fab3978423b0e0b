"""What runs inside the helper container: only the standard library and one another."""
