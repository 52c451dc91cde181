"""Columns of a table that a tokenizer makes, beside a text, a label and a vector for each sample."""

LENGTHS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
COLUMNS = {
    "sentence": [f"text {place}" for place in range(10)],
    "label": [place % 3 for place in range(10)],
    "input_ids": [list(range(1, 1 + length)) for length in LENGTHS],
    "token_type_ids": [[place % 2] * length for place, length in enumerate(LENGTHS)],
    "attention_mask": [[1] * length for length in LENGTHS],
    "vector": [[place / 2, -1.0, 3.0] for place in range(10)],
}
