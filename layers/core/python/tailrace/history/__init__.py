"""History: entries that have left the store's tables, in immutable segments, and the way back."""
