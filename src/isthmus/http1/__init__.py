"""HTTP/1.1 as a client, with nothing between the socket and the caller.

Both APIs that we use are HTTP/1.1 with small requests and JSON answers, and both clients know better than a
library when a request may be sent again. `answer` reads bytes, `connection` moves them.
"""
