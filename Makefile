SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: build demo test

build: ## The program: target/release/falkon
	cargo build --release --locked -p falkon-cli

demo: ## Finds faint objects in a made-up survey of the sky; see examples/stacking
	examples/stacking/demo.sh

test: ## Everything that must hold
	@tests/all.sh
