"""Every operation of a backend in plain PyTorch: the definition of correct, and the fallback without kernels."""
