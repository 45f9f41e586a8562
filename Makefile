# Each does all its own set-up:
#   make quickstart   profile a real model here, sweep it over 1 to 256 workers, write reports/quickstart.html
#   make test         the test suite: before every push
#   make test-fast    its unit tests, properties and oracles: for every save
#   make test-all     whole validations, plans, notebooks, matrices of real clusters and fresh random examples too, and torture
#   make torture      an hour of damaged files, kills, full disks and misread values: SECONDS=600 SEED=2 for other times and draws
#   make docs        the pages of docs/ as a site that opens offline: build/docs/index.html
#   make size        how large the product is: code, modules, the largest ten files
#   make quotes      what README and docs quote of commands, brought up to date: after what commands print has changed
# PYTHON chooses the interpreter (3.11 to 3.13).

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# a CUDA build where there is an NVIDIA driver, else the plain one
TF     := $(shell if [ -e /proc/driver/nvidia/version ] || command -v nvidia-smi >/dev/null 2>&1; then echo tensorflow-cuda; else echo tensorflow; fi)

# what pip leaves unsaid
SAY_INSTALLING := echo "installing TensorFlow and what else Paceline needs into $(VENV): some minutes"

# three processes for two cores, since many tests wait; those of every save do not
PYTEST := $(BIN)/python -m pytest --dist worksteal

# the tests start hundreds of processes, each of which would compile all that it imports
test test-fast test-all: export PYTHONDONTWRITEBYTECODE =

.PHONY: quickstart test test-fast test-all torture lint types layers check docs quotes notebooks timelines pictures benchmark size clean browser simgrid

quickstart: $(VENV)/.ready
	$(BIN)/paceline quickstart --out reports/quickstart.html

test: $(VENV)/.ready-dev browser simgrid
	$(PYTEST) -n 3 -m "not long" --durations=25

test-all: $(VENV)/.ready-dev browser simgrid
	$(PYTEST) -n 3 --hypothesis-profile=all --durations=25
	$(MAKE) torture SECONDS=300

# no browser, no TensorFlow, no cluster, nothing that needs many replications
test-fast: $(VENV)/.ready-dev
	$(PYTEST) -n 2 -m "not long and not slow and not statistics" tests/unit tests/property tests/oracle

# exits non-zero if anything was lost, left, misread or ended in a traceback; the last run: evidence/tables/torture.csv
SECONDS := 3600
SEED    := 1
torture: $(VENV)/.ready-dev
	PYTHONPATH=tests $(BIN)/python -m torture --seconds $(SECONDS) --seed $(SEED)

check: lint types layers

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready-dev
	$(BIN)/mypy

layers: $(VENV)/.ready-dev
	$(BIN)/lint-imports

# whatever Sphinx warns of, such as a dead link or a page that no list names, is an error; built from scratch, since pages follow from the code
docs: $(VENV)/.ready-dev
	$(BIN)/python -m sphinx --quiet --fresh-env --fail-on-warning --keep-going docs build/docs
	@echo "The site is in build/docs: open build/docs/index.html"

# prints which pages have changed, and lines that must be changed by hand
quotes: $(VENV)/.ready-dev
	$(BIN)/python docs/quotes.py

# runs every notebook and stores what it shows
notebooks: $(VENV)/.ready-dev
	$(BIN)/python notebooks/execute.py

# the pictures in docs/, simulated and drawn again
timelines: $(VENV)/.ready-dev
	$(BIN)/python docs/timelines/draw.py

# the first screens of reports, in docs/ and reports/
pictures: $(VENV)/.ready-dev browser
	$(BIN)/python docs/pictures/draw.py

size:
	@$(PYTHON) benchmarks/size.py

benchmark: $(VENV)/.ready-dev
	$(BIN)/python benchmarks/run.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { echo "Paceline needs Python 3.11 to 3.13; set PYTHON=/path/to/one" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	@$(SAY_INSTALLING)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(TF),fast]'
	@touch $@

$(VENV)/.ready-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@$(SAY_INSTALLING)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(TF),dev]'
	@touch $@ $(VENV)/.ready

# the report is tested in a real browser: Debian's, installed if it is not there
browser:
	@command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1 || \
	{ echo "installing Debian's chromium for the report tests"; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver iproute2 >/dev/null; }

# another simulator, to compare the network with; without it that comparison is skipped
simgrid:
	@dpkg -s libsimgrid-dev >/dev/null 2>&1 && command -v g++ >/dev/null 2>&1 || \
	{ echo "installing Debian's SimGrid to compare with"; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libsimgrid-dev g++ >/dev/null 2>&1 || \
	echo "SimGrid could not be installed: the comparison with it is skipped"; }

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
