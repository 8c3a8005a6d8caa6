# One name for everything a person or CI does here. `make help` lists them.

CARGO ?= cargo
PYTHON := .venv/bin/python
# The profile that tests run in: optimized, with every assertion on. One build serves them all.
SIM := --profile sim
BINARY = $(or $(CARGO_TARGET_DIR),target)/sim/meridian

.PHONY: help run test test-long fuzz bench bench-check lab photos interop setup lint unit planted python pages docs clean

help: ## List what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: ## Build, and run a three-region cluster in one process: redis-cli -p 7001
	$(CARGO) build --release --locked --package meridian
	$(or $(CARGO_TARGET_DIR),target)/release/meridian dev $(ARGS)

test: ## Set up what the tests need, then run every test, format and lint check
	@tests/setup.sh
	@tests/stages.py test

test-long: ## The longer runs: 200 seeds an engine, planted bugs over many seeds, 100 crashes of real nodes, memory over 10 million rmws
	@tests/setup.sh
	@tests/stages.py test-long

fuzz: ## Coverage-guided fuzzing of the RESP parser, the wire decoder, the readers of histories and of contexts (nightly and cargo-fuzz; SECONDS_EACH=60)
	@tests/fuzz.sh

bench: ## Three real nodes under load, in memory and with fsync, beside a plain Redis
	$(CARGO) build --release --locked --package meridian
	tests/bench.py

bench-check: ## How fast the checker judges histories of a million operations, and in how much memory
	$(CARGO) bench --manifest-path benches/Cargo.toml

lab: ## The papers' figures under virtual time, quick: lab-out/report.html
	$(CARGO) build --release --locked --package meridian
	$(or $(CARGO_TARGET_DIR),target)/release/meridian lab run all --quick
	$(or $(CARGO_TARGET_DIR),target)/release/meridian lab report

photos: setup ## The RSS paper's photo-sharing application, with a page; ARGS="--model po-serializable --drive 100"
	$(CARGO) build --release --locked --package meridian
	$(PYTHON) examples/photos/run.py --meridian $(or $(CARGO_TARGET_DIR),target)/release/meridian $(ARGS)

interop: ## go-redis, ioredis and jedis against a running cluster
	$(CARGO) build $(SIM) --locked --package meridian
	interop/run.sh $(BINARY)

# What `make test` is made of, each to be run alone.

setup: ## Install or name what the tests need
	@tests/setup.sh

lint: ## Format and lints, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings

unit: ## Tests of all crates, real processes and simulation included
	$(CARGO) test $(SIM) --workspace --locked

planted: ## Each planted bug is found by name
	$(CARGO) test $(SIM) --locked --package meridian-sim --features planted-bugs --test planted --test exhaustive --test composed

python: setup ## redis-py, redis-cli and redis-benchmark against a running cluster
	$(CARGO) build $(SIM) --locked --package meridian
	$(PYTHON) tests/interop/clients.py $(BINARY)
	PYTHONPATH=clients/python/src $(PYTHON) -m unittest discover -s clients/python/tests
	PYTHONPATH=clients/python/src $(PYTHON) -m unittest discover -s examples/photos

pages: setup ## Pages that explain violations, the lab's and the photos', in a real browser; pictures of them in target/pages
	$(CARGO) build $(SIM) --locked --package meridian
	$(PYTHON) tests/pages/timeline.py $(BINARY) target/pages
	$(PYTHON) tests/pages/lab.py $(BINARY) target/pages
	$(PYTHON) tests/pages/photos.py $(BINARY) target/pages

docs: ## Documentation of the code builds without a warning
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

clean: ## Remove what was built
	$(CARGO) clean
	rm -rf .venv interop/node/node_modules interop/java/target lab-out
