"""Action Cable behind API Gateway: who is connected is in the table, and no process lasts.

What clients say comes in events (`conversation`), what is new in the log comes through the table's
stream (`deliveries`), and what is due comes by the clock (`pulse`). All of them send through API
Gateway's management API (`posts`). `store.dynamo.layout` has every item.
"""
