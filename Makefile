# Everything that is done to this project, by name. `make help` lists it.
# CARGO_TARGET_DIR is respected; Debian packages are installed only where apt-get may be used.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 60
TARGET = $(or $(CARGO_TARGET_DIR),target)
SWATH = $(TARGET)/release/swath

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1	\2/p' Makefile | expand -t 12

build: ## The release binary
	$(CARGO) build --release --locked -p swath

demo: ## Six replicas of one file, one dying (demo/report.html); 10,000 files from 100 ms away
	@scripts/demo

demo-relay: ## A transfer finds its way over seven emulated sites (demo/relay.html, demo/routes.svg; root)
	@scripts/demo-relay

test: ## All tests; says which were skipped, and why
	@scripts/test

check: ## What must hold beside the tests: format, clippy, docs, licences, house rules
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked --quiet
	$(CARGO) test --locked --quiet -p swath --test tidy
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --offline check licenses bans sources; fi

bench: ## The benchmarks of docs/benchmarks.md (root; some two hours)
	@scripts/need nginx:nginx-light aria2c:aria2 curl:curl rsync:rsync ip:iproute2 || true
	bench/multisource
	bench/disk
	bench/store
	bench/trees
	bench/serve
	bench/routes
	$(CARGO) run --release --locked -q -p swath-plan --example planner_bench

soak: ## A sparse file of 100 GiB, 100,000 small files, 1,200 kills: about half an hour
	bench/soak

fuzz: ## Every parser for FUZZ_SECONDS=60 each (nightly, cargo-fuzz)
	fuzz/run $(FUZZ_SECONDS)

dist: ## A static program and a Debian package in target/dist, tried in empty roots
	packaging/dist $(TARGET)/dist
	packaging/try $(TARGET)/dist

install: build ## Program, man pages and completions below PREFIX=/usr/local
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 $(SWATH) $(DESTDIR)$(PREFIX)/bin/swath
	$(SWATH) man --dir $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(SWATH) completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/swath
	$(SWATH) completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_swath
	$(SWATH) completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/swath.fish

clean: ## Remove what was built and what the demo left
	$(CARGO) clean
	rm -rf demo

.PHONY: help build demo demo-relay test check bench soak fuzz dist install clean
