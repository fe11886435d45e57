"""Building needs no Spark, and says so where it would."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import millstream as ms

rows = ms.read(ms.Spark("parquet", path="in", schema="id long"))
outputs = rows.to(ms.Spark("parquet", path="out")), rows.to(ms.ForeachBatch(print))
ms.Pipeline("p", *outputs).plan()
assert "pyspark" not in sys.modules
try:
    ms.read(ms.Spark("parquet", path="in"))
except ms.errors.InvalidSpec as error:
    print(error)
"""


def test_building_needs_no_spark_if_the_columns_are_given() -> None:
    code = CODE.replace("ms.errors", "__import__('millstream.errors').errors")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (
        "reading Spark('parquet', path='in') needs its columns before Spark starts; got no "
        'schema=; write schema="id long, at timestamp", or start a Spark session first'
    )
