"""Beaglehole, Mitliagkas, Agarwala 2024, arXiv:2402.05271: gradient descent aligns weights with the empirical NTK."""
