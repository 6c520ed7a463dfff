"""Action Cable behind API Gateway: connections are items of the table, since no process lasts.

Client messages arrive as events (`conversation`), new entries through the table's stream
(`delivery`), and pings and expiry follow the clock (`heartbeat`). All of them send through API
Gateway's management API (`gateway_api`). `store.dynamodb.layout` describes every item.
"""
