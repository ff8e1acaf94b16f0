SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: build lab demo test dist test-dist docs figures test-htcondor test-kubernetes hostile soak mutants explore

build: ## The program: target/release/falkon
	cargo build --release --locked -p falkon-cli

lab: ## The program, and what measures it: target/release/falkon-lab
	cargo build --release --locked -p falkon-cli -p falkon-lab

demo: ## Finds faint objects in a made-up survey of the sky; see examples/stacking
	examples/stacking/demo.sh

test: ## Everything that must hold
	@tests/all.sh

dist: ## What a release gives away: a program for old and new systems, wheels, packages: target/packages
	@packaging/dist.py

test-dist: ## Installs and uses each package of target/packages, also in old and new Debian roots (as root)
	@packaging/test.py

docs: ## A site of all pages, with a search and checked links: target/docs/site
	@docs/site/build.py

figures: ## The commands that print the figures of all pages, and the date and load of their last runs
	@bench/figures.py

test-htcondor: ## Executors from a real HTCondor; installs one where there is none (560 MB)
	@tests/htcondor.py

test-kubernetes: ## Executors from a real Kubernetes; builds a control plane once (ten minutes, needs Go)
	@tests/kubernetes.py

hostile: ## Ten minutes of peers that prove who they are and mean ill
	FALKON_HOSTILE_SECONDS=$${FALKON_HOSTILE_SECONDS:-600} cargo test --locked -p falkon-cli --test end_to_end hostile -- --nocapture

soak: build ## An hour of real services that are killed, paused, cut off and short of disk (as root, with iproute2)
	tests/soak.py

mutants: ## Plants 300 small defects, another sample each time, and says which no test finds
	tests/mutants.py

explore: ## Ten minutes of random tests with choices that were never made before; prints the seed of a failure
	tests/explore.sh
