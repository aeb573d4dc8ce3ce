"""Chen, Li, Liang, Shi, Song 2024: looped linear transformers run gradient descent in context."""
