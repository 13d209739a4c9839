# What a person types. Each command first makes sure that what it needs is installed (scripts/setup).

export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

# Published figures to compare with, where they lie beside the checkout; tests that need them print `SKIPPED: reference` without.
export TAILCUT_REFERENCE ?= $(abspath $(wildcard ../shared/reference))

.PHONY: help demo test bench peers search redis redis-module mutants setup

BUILT := $(abspath $(or $(CARGO_TARGET_DIR),target))/debug

BENCHES := $(addprefix --bench ,ratios long many streams queue engine coverage stamps instrument overload sealed typed c python)

help:
	@echo 'make demo    show what a short tail is; writes target/demo.html'
	@echo 'make test    run every test'
	@echo 'make bench   compare with other stacks on this machine, time the simulator, and try the statistics'
	@echo 'make peers   echoes beside Aeron, tonic and QUIC on this machine; compiles them first, which takes minutes'
	@echo 'make book    build the docs as a book, at target/book'
	@echo 'make search  a search service behind a router, NGINX and HAProxy; writes experiments/search. 15 minutes, 3 GB'
	@echo 'make redis   a Redis with replicas likewise; writes experiments/redis. 10 minutes'
	@echo 'make mutants change placement and proto in thousands of places, and list the changes that no test notices; takes hours.'
	@echo '             MUTANTS="-f crates/proto/src/r2p2/pace.rs" for a file, MUTANTS="--shard 0/40" for a share of all files'
	@echo 'make redis-module  build the Redis module and try it in real servers'
	@echo 'make setup   install what these need'

demo:
	scripts/setup build
	cargo run --release --locked -p tailcut-cli --bin tailcut -- demo

# The output of tests that pass is shown, because a test that skips says so there.
test:
	scripts/setup test
	cargo test --workspace -- --show-output
	tools/wireshark/check.sh
	TAILCUT=$(BUILT)/tailcut TAILCUT_PYTHON=$(BUILT)/deps/libtailcut_python.so python/check.sh

bench:
	scripts/setup bench
	cargo bench --workspace $(BENCH_FLAGS) $(BENCHES)
	@[ ! -x $(PEERS) ] && echo 'Aeron, tonic and QUIC: compiled and compared by `make peers`' || $(PEERS) echo

# Outside CI: Aeron, tonic and QUIC take minutes to compile.
PEERS := apps/peers/target/release/tailcut-peers
peers:
	scripts/setup peers
	PATH="$(CURDIR)/target/tools/cmake/bin:$$PATH" cargo build --release --locked --features aeron --manifest-path apps/peers/Cargo.toml --target-dir apps/peers/target
	$(PEERS) echo

.PHONY: book
book:
	scripts/book

# Outside CI: both are comparisons with other programs, and what they serve takes minutes to compile.
search:
	scripts/setup search
	cargo build --release --locked -p tailcut-cli
	cargo build --release --manifest-path apps/workers/Cargo.toml --target-dir apps/workers/target
	cargo build --release --manifest-path apps/search/Cargo.toml --target-dir apps/search/target
	scripts/search --binary $(abspath $(or $(CARGO_TARGET_DIR),target))/release/tailcut

redis:
	scripts/setup redis
	cargo build --release --locked -p tailcut-cli
	cargo build --release --manifest-path apps/workers/Cargo.toml --target-dir apps/workers/target
	scripts/redis-module build
	scripts/redis --binary $(abspath $(or $(CARGO_TARGET_DIR),target))/release/tailcut

# Outside CI. The survivors are in target/mutants.out/missed.txt, and those of past runs in docs/mutants.md.
mutants:
	scripts/setup mutants
	mkdir -p target
	cargo mutants --package tailcut-placement --package tailcut-proto --output target $(MUTANTS)

redis-module:
	scripts/setup test
	scripts/redis-module build
	scripts/redis-module test

setup:
	scripts/setup test
	scripts/setup bench
