"""Action Cable: WebSocket clients of Rails, Hotwire and AnyCable on the same log."""
