"""The state of operators: hashed keys, sorted runs in files, and the manifest of current runs.

    hash_keys → buckets      spec: StateSpec            combine: one row per key
    write_segment → Run      View: lookup and scan      Manifest + Change: the current runs
    merge, Merger            collect: unreferenced files

State is a log-structured merge tree of Arrow files. Rows are sorted by (`_order`, `_hash`,
keys). The changes of a batch are appended as one run; rows of the same key in several runs are
combined from oldest to newest when they are read or merged.
"""
