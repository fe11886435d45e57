"""What an operator remembers: hashed keys, sorted runs in files, and the list of those in force.

    hash_keys → buckets      spec: StateSpec            combine: rows of one key become one
    write_segment → Run      View: lookup and scan      Manifest + Change: which runs count
    merge, Merger            collect: files nobody refers to

State is a log-structured merge tree of Arrow files. Rows are sorted by (`_order`,
`_hash`, keys); what a batch changed is appended as one run, rows of the same key in
several runs are combined oldest to newest when they are read or merged.
"""
