"""What a handler asks for, and its arguments to and from JSON."""
