#!/bin/sh
# Starts the server, and again whenever it ends; Ctrl-C or TERM stops it. It registers the keys in members.toml,
# and resumes the run that was requested last from its last finished round. What is wrong with this folder, such as
# a certificate that has expired, is said, and ends it.
cd "$$(dirname "$$0")" || exit 1
. ./environment
umask 077
link=
trap 'kill $$link 2>/dev/null; wait; exit 0' INT TERM
while :; do
    python -m rebafl.federation.superlink . --host "$$LISTEN" --port "$$PORT" \
        --ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key \
        --enable-supernode-auth --disable-runtime-dependency-installation --database superlink.db &
    link=$$!
    wait $$link
    if [ $$? -eq 2 ]; then exit 2; fi
    sleep 2
done
