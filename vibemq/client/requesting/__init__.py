"""What a client asks and is answered."""
