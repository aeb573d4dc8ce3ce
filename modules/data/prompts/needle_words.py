"""The vocabulary of keyed needles and fillers. Figures import it where they are declared, so it imports no torch."""

BEGIN, QUERY = 0, 1
KEYS, VALUES, FILLERS = 16, 16, 24
FIRST_KEY = 2
FIRST_VALUE = FIRST_KEY + KEYS
FIRST_FILLER = FIRST_VALUE + VALUES
NEEDLE_WORDS = (
    "BEGIN",
    "Q",
    *(f"key_{i}" for i in range(KEYS)),
    *(f"value_{i}" for i in range(VALUES)),
    *(f"filler_{i}" for i in range(FILLERS)),
)
NEEDLE = 3  # tokens of a needle
