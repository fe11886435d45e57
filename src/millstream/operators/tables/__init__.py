"""Tables: what is true now, per key.

    changes -- decode --> sets and deletes by key -- current --> old rows retracted, new ones added

A table is a log of changes or the result of a step. Later steps receive each change as the old
row with the sign −1 and the new one with +1.
"""
