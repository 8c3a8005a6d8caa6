#!/usr/bin/env bash
# go-redis, ioredis and jedis against a running cluster: interop/run.sh PATH/TO/meridian
# Each needs its language's tools (go, npm, mvn and a JDK) and fetches its client; one that is missing is named.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "$1")
port=${PORT:-7401}
log=$(mktemp)
"$binary" dev --rtt none --port "$port" >"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -f "$log"' EXIT
for _ in $(seq 300); do
    grep -qx ready "$log" && break
    sleep 0.1
done
grep -qx ready "$log" || { cat "$log" >&2; exit 1; }

passed=0 failed=0 skipped=0
try() { # NAME TOOL COMMAND...
    local name=$1 tool=$2
    shift 2
    if ! command -v "$tool" >/dev/null; then
        echo "skip  $name: '$tool' is missing"
        skipped=$((skipped + 1))
    elif "$@"; then
        echo "ok    $name"
        passed=$((passed + 1))
    else
        echo "FAIL  $name"
        failed=$((failed + 1))
    fi
}
go_redis() { (cd "$here/go" && go run . "$port"); }
ioredis() { (cd "$here/node" && npm ci --silent --no-audit --no-fund && node check.js "$port"); }
jedis() { (cd "$here/java" && mvn -q -B compile exec:java -Dexec.args="$port"); }
try go-redis go go_redis
try ioredis npm ioredis
try jedis mvn jedis
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
