"""Data: frozen structs with the fields that some decision reads, and nothing else.

A field that is not read costs memory in every cache and time in every decode, so each one is added when it is
first needed. Structs decode from what the API server sends; fields that they do not name are skipped, so a struct
must never be sent back as a whole object (see `kube.client.Client.update`).
"""
