"""Long proofs that nothing is lost and no number is wrong: `make soak` runs them all, `make test` a quick part."""
