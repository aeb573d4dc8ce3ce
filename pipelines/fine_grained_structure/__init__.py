"""Yang, Steinhardt, Hu 2023: last-layer features keep the fine structure of the input after neural collapse."""
