"""Li, Liang, Shi, Song, Zhou 2024, arXiv:2402.09469: Fourier circuits in networks that add residues."""
