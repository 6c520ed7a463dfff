"""The steps of `sweep`: what to remove, for which reason, and how much of it there is."""
