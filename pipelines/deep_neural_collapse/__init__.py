"""Beaglehole, Sukenik, Mondelli, Belkin 2024, arXiv:2402.13728: the AGOP as a mechanism of deep neural collapse."""
