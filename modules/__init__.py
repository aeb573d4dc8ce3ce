"""What is trained and measured: networks, data, learners, measures, probes. Knows no Ray and no MLflow."""
