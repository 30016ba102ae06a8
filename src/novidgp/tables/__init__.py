"""Tables: reading, encoding, checking."""
