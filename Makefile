# All tasks of this project. `make help` lists them.
# CARGO_TARGET_DIR is respected. Debian packages are installed only where apt-get may be used.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 60
TARGET = $(or $(CARGO_TARGET_DIR),target)
SWATH = $(TARGET)/release/swath
SOURCES = Cargo.toml Cargo.lock $(shell find crates -path '*/src/*' -name '*.rs' -o -name Cargo.toml)
SHARE = $(PREFIX)/share
MAN = $(SHARE)/man/man1
UNITS = $(PREFIX)/lib/systemd/system

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1	\2/p' Makefile | expand -t 12

build: ## Build the release program
	$(CARGO) build --release --locked -p swath

demo: ## Fetch a file from six replicas, one of which dies (demo/report.html); copy 10,000 files from 100 ms away
	@scripts/demo

demo-relay: ## Fetch a file through relays at seven emulated sites (demo/relay.html, demo/routes.svg; root)
	@scripts/demo-relay

test: ## Run the tests that need nothing but Rust; show which were skipped (WORDS=relay_cache: only those)
	@scripts/test $(WORDS)

test-all: ## Run all tests: also those with servers and clients of others, root, namespaces, random kills
	@scripts/test --all $(WORDS)

check: ## Check format, clippy, docs, licences and house rules
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked --quiet
	$(CARGO) test --workspace --locked --quiet --test tidy
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --offline check licenses bans sources; fi

bench: ## Run the benchmarks of docs/benchmarks.md (root; about eight hours)
	@scripts/need nginx:nginx-light aria2c:aria2 curl:curl rsync:rsync ip:iproute2 transmission-cli:transmission-cli || true
	bench/multisource
	bench/disk
	bench/store
	bench/trees
	bench/serve
	bench/limits
	bench/routes
	bench/tracker
	bench/publish
	bench/version
	bench/swarm
	bench/share
	bench/third-party
	bench/study
	bench/forecast
	$(CARGO) run --release --locked -q -p swath-plan --example planner_bench
	$(CARGO) run --release --locked -q -p swath-swarm --example swarm_bench

bench-short: ## Compare an earlier build, BEFORE=FILE, with this one in eight rows (root; at most 20 minutes)
	@test -n "$(BEFORE)" || { echo "name the earlier build: make bench-short BEFORE=FILE" >&2; exit 2; }
	bench/short --before "$(BEFORE)"

soak: ## Run a sparse file of 100 GiB, 100,000 small files and 1,200 kills (about half an hour)
	bench/soak

fuzz: ## Fuzz every parser for FUZZ_SECONDS=60 (nightly, cargo-fuzz)
	fuzz/run $(FUZZ_SECONDS)

dist: ## Build a static program, a tarball and a Debian package in target/dist, and try them in empty root folders
	packaging/dist $(TARGET)/dist
	packaging/try $(TARGET)/dist

install: $(SWATH) ## Install program, man pages, completions and systemd units below PREFIX=/usr/local
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(MAN) $(DESTDIR)$(UNITS)
	install -m 755 $(SWATH) $(DESTDIR)$(PREFIX)/bin/swath
	$(SWATH) man --dir $(DESTDIR)$(MAN)
	install -d $(DESTDIR)$(SHARE)/bash-completion/completions \
		$(DESTDIR)$(SHARE)/zsh/site-functions $(DESTDIR)$(SHARE)/fish/vendor_completions.d
	$(SWATH) completions bash >$(DESTDIR)$(SHARE)/bash-completion/completions/swath
	$(SWATH) completions zsh >$(DESTDIR)$(SHARE)/zsh/site-functions/_swath
	$(SWATH) completions fish >$(DESTDIR)$(SHARE)/fish/vendor_completions.d/swath.fish
	for unit in serve relay; do \
		sed 's|/usr/bin/swath|$(PREFIX)/bin/swath|g' packaging/swath-$$unit.service \
			>$(DESTDIR)$(UNITS)/swath-$$unit.service || exit 1; \
		chmod 644 $(DESTDIR)$(UNITS)/swath-$$unit.service; \
	done

uninstall: ## Remove what install put below PREFIX=/usr/local
	rm -f $(DESTDIR)$(PREFIX)/bin/swath \
		$(DESTDIR)$(MAN)/swath.1 $(DESTDIR)$(MAN)/swath-*.1 \
		$(DESTDIR)$(SHARE)/bash-completion/completions/swath \
		$(DESTDIR)$(SHARE)/zsh/site-functions/_swath \
		$(DESTDIR)$(SHARE)/fish/vendor_completions.d/swath.fish \
		$(DESTDIR)$(UNITS)/swath-serve.service $(DESTDIR)$(UNITS)/swath-relay.service

# Root installs what a user built, without building it again.
$(SWATH): $(SOURCES)
	$(CARGO) build --release --locked -p swath
	@touch $@

clean: ## Remove build results and what the demos left
	$(CARGO) clean
	rm -rf demo

.PHONY: help build demo demo-relay test check bench bench-short soak fuzz dist install uninstall clean
