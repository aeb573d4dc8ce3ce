"""What the paper prints: accuracies of Figures 6.2 and 6.3, Table 6.1 and Tables E.1 to E.6.

Table 6.2 consists of rows of Tables E.1 to E.5, and Table 6.3 of columns of Table E.6.
"""

from typing import Any

from featurelab.pipelines import printed_table

SYNTHETIC = {"ERM": 0.76, "ERM-NU": 0.94}  # accuracy out of domain

# algorithms, and the rows of tables that have each of them with and without the nuclear norm
ALGORITHMS = {"erm": "ERM", "mixup": "Mixup", "swad": "SWAD"}
WITH_AND_WITHOUT = {(algorithm, penalty): name + ("-NU" if penalty == "nuclear" else "")
    for algorithm, name in ALGORITHMS.items() for penalty in ("none", "nuclear")}

DATASETS = {"E.1": "VLCS", "E.2": "PACS", "E.3": "OfficeHome", "E.4": "TerraInc", "E.5": "DomainNet"}

Table = dict[str, dict[str, tuple[float, float | None]]]


def accuracies(name: str) -> Table:
    """By algorithm and column, the mean and its standard error, in percent; averages have no error."""
    rows: list[dict[str, Any]] = [dict(row) for row in printed_table(__file__, name)]
    return {
        row.pop("algorithm"): {
            column: (mean, row.get(f"{column} error")) for column, mean in row.items() if not column.endswith(" error")
        }
        for row in rows
    }


TABLES = {name: accuracies(f"table_{name.lower().replace('.', '_')}.csv") for name in ("6.1", *DATASETS, "E.6")}
