"""Shi, Wei, Liang 2022 (ICLR): feature learning emerges from the structure of inputs."""
