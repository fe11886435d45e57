"""Windows: rows are grouped, and each group is aggregated per key.

    rows -- bounds --> windows -- accumulators --> state -- watermark --> results

A window defines which rows belong together; aggregates define what is kept of them. A window
is emitted once, when the watermark has reached its end. Rows that arrive after that are late
and go to the late side output.
"""
