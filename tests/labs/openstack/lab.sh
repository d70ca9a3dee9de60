#!/bin/bash
# A real OpenStack 2026.1 control plane on 127.0.0.1, for development and tests: see README.md.
set -euo pipefail
. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/env.sh"; . "$HERE/process.sh"
case ${1:-help} in
  install) exec "$HERE/install.sh";;
  up) "$HERE/up.sh" || { echo "openstack lab: once more, from nothing" >&2; exec "$HERE/up.sh"; };;
  down) exec "$HERE/down.sh";;
  wipe) exec "$HERE/down.sh" wipe;;
  env) [ -e "$RUN/ready" ] || fail "does not run: lab.sh up"
    for k in OSLAB_STATE OSLAB_PORT_BASE; do printf 'export %s=%q\n' $k "${!k}"; done
    printf 'export OS_CLIENT_CONFIG_FILE=%q OS_CLOUD=k8s OSLAB_PYTHON_BIN=%q\n' "$RUN/clouds.yaml" "$V/bin/python";;
  status) if [ -e "$RUN/ready" ]; then echo "up: $RUN"; else echo "not up"; fi
    for n in $(names); do
      m=0; for q in $(members "$n"); do m=$((m + $(awk '/^Pss:/{print $2}' "/proc/$q/smaps_rollup" 2>/dev/null || echo 0))); done
      printf '%-24s %6d MiB\n' "$n" $((m/1024)); done;;
  *) cat <<'E2'
lab.sh install      download and install into the cache (`up` does it, too)
lab.sh up           start from nothing; says so at once when it runs already
lab.sh down | wipe  end every process of this lab | and remove its state
lab.sh env          print `export ...` lines: eval "$(./lab.sh env)"
lab.sh status       what runs, and the memory it takes
E2
esac
