"""Index width: 32 bits where they hold every index and offset."""
