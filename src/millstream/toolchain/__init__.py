"""The toolchain: what runs underneath, found or fetched, and checked before it is used.

    a machine -- java --> a Java 17+ -- jars --> Spark's connector, a Kafka broker

Nothing here knows a topic, a row or a pipeline. Whatever is missing ends in one `SetupFailed`
sentence that says what to do; whatever was fetched once is used again without a network.
"""
