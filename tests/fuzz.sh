#!/usr/bin/env bash
# Coverage-guided fuzzing, SECONDS_EACH (default 60) for each target. Needs a nightly toolchain and cargo-fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo +nightly --version >/dev/null 2>&1 || {
    echo "fuzz: a nightly toolchain is missing: rustup toolchain install nightly" >&2
    exit 1
}
cargo fuzz --version >/dev/null 2>&1 || cargo install --locked --version 0.13.2 cargo-fuzz
for target in history resp token wire; do
    # What is found goes to a scratch corpus; the committed one stays small and is only read.
    mkdir -p "fuzz/found/$target"
    cargo +nightly fuzz run "$target" "fuzz/found/$target" "fuzz/corpus/$target" -- \
        -max_total_time="${SECONDS_EACH:-60}" -timeout=10 -rss_limit_mb=2048
done
