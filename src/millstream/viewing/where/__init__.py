"""A filter language for records: text is parsed into a condition, never executed as code.

    price > 10 and (shop.country = 'de' or not paid) and _key like 'user-%'

- names: fields of the JSON value (`price`, `shop.country`, `items.0.sku`, `` `odd name` ``) and
  the record's own `_key _topic _partition _offset _timestamp _headers.NAME`
- literals: numbers, text in 'single' or "double" quotes (doubled for one inside), true, false, null
- comparisons: = == != <> < <= > >=, `in (…)`, `like` with % and _, `is null`, each with `not`
- logic: `and`, `or`, `not`, parentheses

As in SQL, a field that is missing, null or of another type makes a comparison *unknown*, and a
record is shown only if the whole condition is true.
"""
