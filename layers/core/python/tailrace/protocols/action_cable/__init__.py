"""Action Cable: WebSocket clients of Rails, Hotwire and AnyCable on the same log.

`server` answers requests. Connections are either kept in this process (`in_process`) or by API
Gateway (`api_gateway`); `core` is what both have in common.
"""
