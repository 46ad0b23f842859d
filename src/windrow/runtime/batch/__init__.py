"""The batch host: a bounded replay as one Spark job, with the operators of the other hosts and no state store."""
