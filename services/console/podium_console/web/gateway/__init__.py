"""The API's own methods as JSON over HTTP, by the Connect protocol: curl submits a job.

https://connectrpc.com/docs/protocol
"""
