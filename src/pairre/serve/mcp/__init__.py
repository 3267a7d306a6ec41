"""Tools of language-model agents: the answers of a server, as short as an agent needs them.

Decided here: what agents may ask, how that is explained to them, and how little of an answer they get.
"""
