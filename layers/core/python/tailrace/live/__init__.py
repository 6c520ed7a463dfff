"""Following streams: one follower for everybody who tails a stream."""
