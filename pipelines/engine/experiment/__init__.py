"""What a figure is: config, axes, claims, results, drawing; and where experiments are found."""
