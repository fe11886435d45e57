"""Windows: rows become groups, and each group one answer per key.

    rows -- bounds --> windows -- accumulators --> state -- watermark --> results

A window says where in event time a row belongs; an aggregate says what is remembered of
its rows. A window leaves once, when the watermark has reached its end; a row that comes
after that is late, and leaves by its own door.
"""
