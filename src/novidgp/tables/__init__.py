"""Tables: reading and writing files, encoding as matrices, and checks of the data."""
