"""Many runs for one question: tuning settings, and reproducing tables of the paper.

Decided here: how trials are chosen, and what each experiment trains and compares with.
"""
