"""The server over HTTP: routes, limits, what is safe to answer to whom, and the process that listens.

Decided here: nothing is answered beyond this machine without a token, and what is full says so instead of waiting.
"""
