"""Alignment and local elasticity of features after one gradient step, and in deeper networks on images."""
