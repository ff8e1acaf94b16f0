SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: build demo test test-htcondor test-kubernetes

build: ## The program: target/release/falkon
	cargo build --release --locked -p falkon-cli

demo: ## Finds faint objects in a made-up survey of the sky; see examples/stacking
	examples/stacking/demo.sh

test: ## Everything that must hold
	@tests/all.sh

test-htcondor: ## Executors from a real HTCondor; installs one where there is none (560 MB)
	@tests/htcondor.py

test-kubernetes: ## Executors from a real Kubernetes; builds a control plane once (ten minutes, needs Go)
	@tests/kubernetes.py
