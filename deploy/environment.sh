# Makes the virtual environments of this checkout. Sourced by deploy/run, deploy/test and .ci/run.
#
#   repository                                    the checkout, an absolute path
#   find_python                                   prints the interpreter to use, or says why there is none
#                                                 (PYTHON=... names it; else the first of PATH that its builder optimized)
#   find_python_version 3.13                      prints an interpreter of exactly that version, or fails silently
#   prepare_environment DIRECTORY LOCK PYTHON     makes or refreshes DIRECTORY with what LOCK pins, and this project
#   node_is_usable                                whether there is Node 18 or newer, and npm
#   prepare_node_clients                          installs the clients of tests/clients/node, as their lock pins them
#
# Everything comes from a lock, by hash; the project itself is built with the locked backend and fetches nothing.

repository="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"

# Where a distribution keeps its own Python, which it builds optimized.
distribution_bin="${DISTRIBUTION_BIN:-/usr/bin}"

# What a Python is, all asked at once: its version, whether its builder optimized it, its own path. Fails for one that
# does not start (pyenv leaves shims that only print an error), is too old, or lacks a library. Built with profiles, an
# interpreter is a fifth to a third faster; pyenv leaves that out unless it is asked for, distributions do not say it.
described() {
    "$1" -c 'import sqlite3, ssl, sys, sysconfig, venv
is_optimized = sys.base_prefix == "/usr" or "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
print("%d.%d" % sys.version_info[:2], "optimized" if is_optimized else "plain", sys.executable)
sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# Whether it makes environments with pip in them. Debian's does only with its package python3-venv.
brings_pip() {
    "$1" -c 'import ensurepip; ensurepip.version()' >/dev/null 2>&1
}

# The wheel of pip that some Python brings for its environments: it serves those of one that brings none as well.
any_pip() {
    local candidate
    for candidate in python3.13 python3.12 python3.11 python3 "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/3.*/bin/python; do
        described "$candidate" >/dev/null && pip_of "$candidate" && return
    done
    return 1
}

# A distribution keeps it in a place of its own.
pip_of() {
    "$1" -c 'import ensurepip, pathlib, sysconfig
places = sysconfig.get_config_var("WHEEL_PKG_DIR"), pathlib.Path(ensurepip.__file__).parent / "_bundled"
print(next(wheel for place in places if place for wheel in pathlib.Path(place).glob("pip-*.whl")))' 2>/dev/null
}

# The first of these that its builder optimized, else the first that can be used at all; VERSION may be empty.
best_of() {
    local version=$1 candidate known its_version kind path found=
    shift
    for candidate in "$@"; do
        known="$(described "$candidate")" || continue
        read -r its_version kind path <<<"$known"
        if [[ $version != "" && $version != "$its_version" ]] || [[ $kind == plain && -n $found ]]; then
            continue
        fi
        if brings_pip "$candidate" || any_pip >/dev/null; then
            found=$path
            [[ $kind == plain ]] || break
        fi
    done
    [[ -n $found ]] && echo "$found"
}

find_python() {
    local wanted="Python 3.11 or newer that starts, has ssl and sqlite3, and can make environments (venv, and pip for them)"
    if [[ -n ${PYTHON:-} ]]; then
        best_of "" "$PYTHON" && return
        echo "error: PYTHON=$PYTHON is no $wanted" >&2
    else
        best_of "" python3.13 python3.12 python3.11 python3 "$distribution_bin/python3" && return
        echo "error: no $wanted is on PATH; set PYTHON to one" >&2
    fi
    return 1
}

find_python_version() {
    local version=$1
    best_of "$version" "python$version" "$distribution_bin/python$version" \
        "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$version"*/bin/python
}

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'
}

prepare_environment() {
    local directory=$1 lock=$2 python=$3
    local locked project
    # A moved checkout or another interpreter makes the environment's scripts point nowhere: both are in the stamp.
    locked="$("$python" -c 'import sys; print(sys.version)' | tr '\n' ' ') $python $directory $(checksum "$python" "$lock")"
    project="$locked $(checksum "$python" "$repository/pyproject.toml")"
    if ! is_current "$directory" locked "$locked"; then
        make_environment "$directory" "$python"
        install_locked "$directory" "$lock"
        echo "$locked" >"$directory/locked.stamp"
    fi
    if ! is_current "$directory" project "$project"; then
        quiet_pip "$directory" --no-index --no-deps --no-build-isolation --editable "$repository"
        # What pip installs it compiles, a checkout nobody does: its first start would be half a second longer, and each
        # where PYTHONDONTWRITEBYTECODE is set or the checkout is read only.
        "$directory/bin/python" -m compileall -q "$repository/gateway" >/dev/null 2>&1 || true
        echo "$project" >"$directory/project.stamp"
    fi
}

make_environment() {
    local directory=$1 python=$2 pip
    if brings_pip "$python"; then
        "$python" -m venv --clear "$directory"
    else
        "$python" -m venv --clear --without-pip "$directory"
        pip="$(any_pip)"
        "$directory/bin/python" "$pip/pip" install --quiet --quiet --no-index "$pip"
    fi
}

# uv takes seconds for what takes pip a minute: where the lock of the tools is installed, it comes first, and brings the
# rest. Its configuration may not reach what pip's does; then pip has the rest, too.
install_locked() {
    local directory=$1 lock=$2 uv="$repository/.venv-dev/bin/uv"
    if [[ $directory == "$repository/.venv-dev" ]]; then
        quiet_pip "$directory" --require-hashes --requirement <(pin_of uv "$lock")
    fi
    if [[ -x $uv ]] &&
        timeout 120 "$uv" pip install --quiet --system-certs --python "$directory/bin/python" --require-hashes \
            --requirement "$lock" >/dev/null 2>&1; then
        return
    fi
    quiet_pip "$directory" --require-hashes --requirement "$lock"
}

# The lines of a lock that pin one package.
pin_of() {
    awk -v pin="$1==" 'index($0, pin) == 1 { is_its = 1 } is_its { print } is_its && !/\\$/ { exit }' "$2"
}

checksum() {
    "$1" -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$2"
}

is_current() {
    local directory=$1 name=$2 stamp=$3
    [[ -f $directory/$name.stamp && $(<"$directory/$name.stamp") == "$stamp" ]] &&
        "$directory/bin/python" -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)' >/dev/null 2>&1
}

# Errors only: what a machine's own pip configuration warns of is nobody's business here.
quiet_pip() {
    local directory=$1
    shift
    "$directory/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-input "$@"
}

node_is_usable() {
    local version
    command -v npm >/dev/null && version="$(node --version 2>/dev/null)" || return 1
    [[ $version =~ ^v([0-9]+)\. ]] && ((BASH_REMATCH[1] >= 18))
}

# No script of a package runs: what a client needs lies in its package.
prepare_node_clients() {
    local clients="$repository/tests/clients/node"
    if ! cmp -s -- "$clients/package-lock.json" "$clients/node_modules/package-lock.stamp"; then
        install_node_clients "$clients" &&
            cp -- "$clients/package-lock.json" "$clients/node_modules/package-lock.stamp"
    fi
}

install_node_clients() {
    timeout 400 npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund --loglevel=error
}
