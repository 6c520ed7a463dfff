"""The core that both ways to serve Action Cable share.

Commands of clients become effects (`session`), and entries of the log become frames (`frames`,
`contents`), without I/O; `in_process` and `api_gateway` carry the effects out. `missed_messages`
reads the log, and `publisher` appends to it.
"""
