"""Yang, Steinhardt, Hu 2023, arXiv:2306.17105: collapsed features keep the fine structure of the input."""
