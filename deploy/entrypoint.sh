#!/bin/sh
# What a container of the image runs: a driver or an executor as Spark's Kubernetes mode starts them, or any command.
#
# https://spark.apache.org/docs/latest/running-on-kubernetes.html; the variables SPARK_* are Spark's own.
set -eu

# Spark's JVM looks up the name of the user, whom a cluster may have given a number of its own
if ! whoami >/dev/null 2>&1 && [ -w /etc/passwd ]; then
    echo "spark:x:$(id -u):$(id -g):spark:${HOME:-/opt/spark}:/bin/false" >>/etc/passwd
fi

case "${1:-}" in
driver)
    shift
    exec tini -s -- "$SPARK_HOME/bin/spark-submit" \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
    ;;
executor)
    # each SPARK_JAVA_OPT_<n> is one option; env ends the words at lines, which no option holds
    set --
    for number in $(env | sed -n 's/^SPARK_JAVA_OPT_\([0-9][0-9]*\)=.*/\1/p' | sort -n); do
        set -- "$@" "$(printenv "SPARK_JAVA_OPT_$number")"
    done
    exec tini -s -- "${JAVA_HOME:+$JAVA_HOME/bin/}java" "$@" \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec tini -s -- "$@"
    ;;
esac
