"""Tables A.1 to A.5 as printed: accuracy on training and test set in percent, and the largest cosine with s*."""

from typing import NamedTuple


class Row(NamedTuple):
    train: float
    test: float
    cosine: float | None = None


TABLES = {
    "A.1": {"network": Row(100, 100, 0.997), "ntk": Row(84.0, 86.4), "rf": Row(74.7, 76.0, 0.114),
        "one_step": Row(51.3, 52.2, 0.848), "two_steps": Row(100, 100, 0.997), "unstructured": Row(100, 52.0, 0.253)},
    "A.2": {"network": Row(100, 100, 1.0), "ntk": Row(100, 100), "rf": Row(76.4, 73.2, 0.153),
        "one_step": Row(44.1, 41.0, 0.901), "two_steps": Row(100, 100, 0.994), "unstructured": Row(100, 100, 0.965)},
    "A.3, d = 100": {"network": Row(100, 100, 1.0), "ntk": Row(83.1, 81.5), "rf": Row(78.9, 78.3, 0.354),
        "one_step": Row(53.0, 51.1, 0.967), "two_steps": Row(100, 100, 1.0), "unstructured": Row(100, 51.0, 0.331)},
    "A.3, d = 2000": {"network": Row(100, 100, 0.998), "ntk": Row(75.6, 75.4), "rf": Row(80.0, 77.0, 0.056),
        "one_step": Row(50.22, 50.01, 0.560), "two_steps": Row(100, 100, 0.998), "unstructured": Row(100, 52.5, 0.309)},
    "A.4, 0.8": {"network": Row(100, 100, 0.999), "ntk": Row(62.9, 82.7), "rf": Row(72.7, 70.4, 0.293),
        "one_step": Row(78.3, 75.7, 0.950), "two_steps": Row(100, 100, 0.999), "unstructured": Row(100, 61.7, 0.218)},
    "A.4, 0.9": {"network": Row(100, 100, 0.997), "ntk": Row(84.0, 81.7), "rf": Row(73.6, 72.4, 0.296),
        "one_step": Row(92.3, 89.2, 0.956), "two_steps": Row(100, 100, 0.997), "unstructured": Row(100, 71.8, 0.286)},
    "A.5, n = 25000": {"network": Row(100, 100, 0.997), "ntk": Row(84.0, 84.1), "rf": Row(78.6, 74.7, 0.105),
        "one_step": Row(50.6, 50.0, 0.851), "two_steps": Row(100, 100, 0.997), "unstructured": Row(100, 50.2, 0.230)},
    "A.5, n = 10000": {"network": Row(100, 100, 0.995), "ntk": Row(73.9, 75.0), "rf": Row(71.6, 74.3, 0.096),
        "one_step": Row(50.7, 50.3, 0.974), "two_steps": Row(100, 100, 0.994), "unstructured": Row(100, 52.2, 0.176)},
}
