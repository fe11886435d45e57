"""Kinds of Spark's functions, which the checks of a pipeline need to know (Spark 4.2).

Functions that are not repeatable, that aggregate, that make rows, and that read the clock.
Aggregates with `_agg` in their name are recognised by it.
"""

from __future__ import annotations

UNREPEATABLE = frozenset({
    "rand", "random", "randn", "randstr", "uniform", "uuid", "shuffle",
    "monotonically_increasing_id", "spark_partition_id", "input_file_name",
    "input_file_block_start", "input_file_block_length", "current_user", "session_user", "user",
    "current_catalog", "current_database", "current_schema", "current_path", "current_time",
    "version", "reflect", "java_method", "try_reflect", "aes_encrypt"
})  # fmt: skip
AGGREGATES = frozenset({
    "any", "any_value", "approx_count_distinct", "approx_percentile", "approx_top_k",
    "approx_top_k_accumulate", "approx_top_k_combine", "avg", "bit_and", "bit_or", "bit_xor",
    "bool_and", "bool_or", "collect_list", "collect_set", "corr", "count", "count_if",
    "count_min_sketch", "covar_pop", "covar_samp", "every", "first", "first_value", "grouping",
    "grouping_id", "histogram_numeric", "kurtosis", "last", "last_value", "listagg", "max",
    "max_by", "mean", "measure", "median", "min", "min_by", "mode", "percentile",
    "percentile_approx", "percentile_cont", "percentile_disc", "regr_avgx", "regr_avgy",
    "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
    "skewness", "some", "std", "stddev", "stddev_pop", "stddev_samp", "sum", "try_avg", "try_sum",
    "var_pop", "var_samp", "variance", "vector_avg", "vector_sum"
})  # fmt: skip
WINDOWS = frozenset({
    "cume_dist", "dense_rank", "lag", "lead", "nth_value", "ntile", "percent_rank", "rank",
    "row_number", "session_window", "window", "window_time"
})  # fmt: skip
GENERATORS = frozenset({
    "collations", "explode", "explode_outer", "inline", "inline_outer", "json_tuple",
    "posexplode", "posexplode_outer", "sql_keywords", "stack", "variant_explode",
    "variant_explode_outer"
})  # fmt: skip

CLOCKS = {
    "now": "{clock}",
    "current_timestamp": "{clock}",
    "current_date": "cast({clock} as date)",
    "curdate": "cast({clock} as date)",
    "localtimestamp": "cast({clock} as timestamp_ntz)",
    "unix_timestamp": "unix_seconds({clock})",
}
CLOCKS_WITHOUT_CALL = ("current_timestamp", "current_date", "localtimestamp")

TYPED_MOMENTS = ("date", "timestamp", "timestamp_ltz", "timestamp_ntz")
SPECIAL_MOMENTS = ("now", "today", "tomorrow", "yesterday")
