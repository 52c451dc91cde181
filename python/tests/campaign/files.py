"""Files of Parquet and of lines of JSON with the samples of a run, written in a way that is drawn."""

import itertools
import json

import batchloom as bl
import pyarrow as pa
import pyarrow.parquet as pq


def in_files(draw, folder, sizes, values, has_lists, is_numbered=True):
    """Write samples as files, and return them as a dataset that reads a chunk at a time, with the numbers of rows."""
    samples = [{"x": value} | ({} if has_lists else {"index": number}) for number, value in enumerate(values)]
    cuts = sorted(draw.randrange(len(samples) + 1) for _ in range(draw.randrange(3)))
    parts = [samples[first:end] for first, end in itertools.pairwise([0, *cuts, len(samples)])]
    write = draw.choice([write_parquet, write_lines])
    extent = -1 if has_lists or draw.random() < 0.5 else 3
    for number, part in enumerate(parts):
        if part:
            write(draw, str(folder / f"part-{number}"), part, sizes, extent)
    options = {"columns": ["x", "index"] if is_numbered and not has_lists else ["x"]}
    options |= {} if has_lists else {"kind": "rows"}
    return bl.open(str(folder), chunks_open=draw.randrange(1, 9), **options)


def write_parquet(draw, path, samples, sizes, extent):
    """Write row groups of drawn sizes."""
    numbers = [pa.field(name, pa.int64()) for name in samples[0] if name != "x"] if samples else []
    fields = [pa.field("x", pa.list_(pa.int64(), extent)), *numbers]
    options = {
        "compression": draw.choice(["none", "snappy", "zstd", "gzip", "lz4"]),
        "use_dictionary": draw.random() < 0.5,
        "data_page_version": draw.choice(["1.0", "2.0"]),
        "data_page_size": draw.choice([16, 200, 1 << 20]),
        "write_page_index": draw.random() < 0.3,
    }
    schema = pa.schema(fields)
    with pq.ParquetWriter(f"{path}.parquet", schema, **options) as writer:
        left, groups = samples, [size for size in sizes if size]
        while left:
            size = draw.choice(groups)
            writer.write_table(pa.Table.from_pylist(left[:size], schema), row_group_size=size)
            left = left[size:]


def write_lines(draw, path, samples, sizes, extent):
    """Write lines with another key, and blank lines between some."""
    with open(f"{path}.jsonl", "w") as file:
        for sample in samples:
            more = {"text": 'a "b" [{', "deep": {"x": [None, {}]}} if draw.random() < 0.5 else {}
            file.write(json.dumps(more | sample) + draw.choice(["\n", "\r\n", "\n\n"]))
