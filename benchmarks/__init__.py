"""What our work costs, next to what one would otherwise run."""
