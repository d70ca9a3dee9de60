#!/usr/bin/env bash
# install | path | up [flags of the server] | down | env: a vCenter of our own on loopback (see README.md).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ccm-supervisor/vsphere
state=${VSPHERE_LAB_STATE:-${TMPDIR:-/tmp}/vsphere-lab-$(id -u)}
stamp=$(cd "$here" && cat go.mod go.sum ./*.go | sha256sum | cut -c1-16)
program=$cache/$stamp/vsphere-lab

install() {
  [[ -x $program ]] && return
  mkdir -p "$cache/$stamp"
  exec 9>"$cache/lock"
  flock 9 # two sessions build once
  [[ -x $program ]] && return
  (cd "$here" && CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags='-s -w' -o "$program.new" .)
  mv "$program.new" "$program"
  exec 9>&-
}

down() {
  [[ -f $state/pid ]] || return 0
  kill "$(cat "$state/pid")" 2>/dev/null || true
  for _ in $(seq 50); do kill -0 "$(cat "$state/pid")" 2>/dev/null || break; sleep 0.1; done
  rm -rf "$state"
}

up() {
  install
  down
  mkdir -p "$state"
  "$program" -dir "$state" "$@" >"$state/log" 2>&1 </dev/null &
  echo $! >"$state/pid"
  for _ in $(seq 1200); do
    [[ -s $state/lab.env ]] && { cat "$state/lab.env"; return; }
    kill -0 "$(cat "$state/pid")" 2>/dev/null || break
    sleep 0.05
  done
  cat "$state/log" >&2
  exit 1
}

case ${1:-} in
  install) install; echo "$program" ;;
  path) echo "$program" ;; # where `install` puts it
  up) shift; up "$@" ;;
  down) down ;;
  env) cat "$state/lab.env" ;;
  *) sed -n 2p "$0"; exit 64 ;;
esac
