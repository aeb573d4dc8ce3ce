"""Shi et al., ICLR 2023: the trade-off between universality and label efficiency of contrastive representations."""
