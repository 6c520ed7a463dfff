"""A long, mixed, hostile day in the life of a Tailrace server, with every answer checked."""
