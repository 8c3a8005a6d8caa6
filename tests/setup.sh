#!/usr/bin/env bash
# Installs what the tests need beside Rust: redis-server and redis-cli to compare with, a PostgreSQL server, a browser, and in .venv what
# drives both from Python.
# On Debian as root it installs packages; elsewhere it says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v redis-server >/dev/null && command -v redis-cli >/dev/null && command -v redis-benchmark >/dev/null ||
    missing+=(redis-server redis-tools)
command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql)
command -v python3 >/dev/null || missing+=(python3)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
command -v openssl >/dev/null || missing+=(openssl)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    missing+=(chromium)

if [ ${#missing[@]} -gt 0 ]; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        echo "setup: installing ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        # The server is only started by tests: without this file Debian would start one of its own.
        [ -e /usr/sbin/policy-rc.d ] || {
            printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
            chmod +x /usr/sbin/policy-rc.d
            trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        }
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    else
        echo "setup: missing: ${missing[*]} (Debian's names): install them and run this again" >&2
        exit 1
    fi
fi

if ! .venv/bin/python -c 'import redis, playwright, PIL' 2>/dev/null || ! cmp -s tests/requirements.txt .venv/requirements.txt; then
    echo "setup: redis-py, playwright and pillow in .venv"
    rm -rf .venv
    python3 -m venv .venv
    .venv/bin/pip install --quiet --disable-pip-version-check --requirement tests/requirements.txt
    cp tests/requirements.txt .venv/requirements.txt
fi
if ! command -v cargo >/dev/null; then
    echo "setup: cargo is missing: install Rust 1.95 (rust-toolchain.toml) and run this again" >&2
    exit 1
fi
