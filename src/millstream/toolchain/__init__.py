"""The toolchain: finds or fetches what Millstream runs on, and checks it before use.

    a machine -- java --> a Java 17+ -- jars --> Spark's connector, a Kafka broker

Nothing here depends on topics, rows or pipelines. If something is missing, `SetupFailed` says what
to do. What was fetched once is used again without a network.
"""
