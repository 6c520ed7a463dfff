"""Action Cable behind API Gateway: every connection is an item of the table.

API Gateway keeps the sockets and invokes a function for each event, so nothing may be kept in a
process between two events. Client messages arrive as events (`command_handler`), new entries
through the table's stream (`delivery`), and a function with a lease sends pings and expires
connections (`heartbeat`). All of them send through API Gateway's management API (`gateway_api`).
`items` describes every item.
"""
