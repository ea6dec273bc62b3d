#!/bin/sh
# Starts $name, and again whenever it ends; Ctrl-C or TERM stops it. After a crash the server refuses it
# for about a minute, until it has noticed that the old process is gone: hence the loop. What is wrong with this
# folder is said, and ends it. Its own processes know each other by `secret` and runtime.crt.
cd "$$(dirname "$$0")" || exit 1
. ./environment
umask 077
node= exec=
trap 'kill $$node $$exec 2>/dev/null; wait; exit 0' INT TERM
while :; do
    if ! kill -0 $$exec 2>/dev/null; then
        # imports torch once and forks a process for each message
        python -m rebafl.federation.warm . --runtime-api-address "127.0.0.1:$$RUNTIME_PORT" \
            --root-certificates runtime.crt --superexec-auth-secret-file secret --parent-pid $$$$ &
        exec=$$!
    fi
    python -m rebafl.federation.supernode . --superlink "$$SERVER" --root-certificates ca.crt \
        --auth-supernode-private-key node.key --isolation process --host 127.0.0.1 --port "$$RUNTIME_PORT" \
        --ssl-certfile runtime.crt --ssl-keyfile runtime.key --ssl-ca-certfile runtime.crt \
        --superexec-auth-secret-file secret \
        --node-config "$$(cat node-config) state=\"$$PWD/state\" key=\"$$PWD/node.key\" members=\"$$PWD/members.toml\"" &
    node=$$!
    while kill -0 $$node 2>/dev/null && kill -0 $$exec 2>/dev/null; do sleep 1; done
    kill $$node 2>/dev/null
    wait $$node
    if [ $$? -eq 2 ]; then
        kill $$exec 2>/dev/null
        exit 2
    fi
    sleep 3
done
