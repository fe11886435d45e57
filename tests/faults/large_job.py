"""A job over record batches that are kilobytes on the wire and gigabytes in memory.

`python -m tests.faults.large_job ADDRESS TOPIC FOLDER LANE` prints the peak
memory of this process.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import millstream as ms


def main(address: str, topic: str, folder: Path, lane: Any) -> None:
    """Run the job until it has caught up."""
    rows = ms.read(ms.Topic(topic, schema="n long, text string"))
    some = rows.select("n", "length(text) as size").to(ms.Topic(f"{topic}.out"))
    job = ms.Pipeline(topic, some, batch="1 minute")
    job.run(until="caught_up", kafka=address, checkpoint=folder, lane=lane)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
