"""Where experiments are found: our systems, packages of other people, the papers behind them."""
