"""What every folder stands on: errors, files written whole, threads, random numbers, devices, progress.

Decided here: how the package fails, and that randomness is a function of (seed, purpose, counter).
"""
