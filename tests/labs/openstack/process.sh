# Starting, finding and ending processes. A process is known by its id AND its start time, so that an id which the kernel
# has given to someone else in the meantime is never touched.
T0=$EPOCHREALTIME TP=$EPOCHREALTIME
mark() { local t=$EPOCHREALTIME; awk -v n="$1" -v t="$t" -v p="$TP" -v z="$T0" \
  'BEGIN { printf "%-42s +%5.1f s  (%5.1f s)\n", n, t-p, t-z }' | tee -a "$RUN/timing.txt"; TP=$t; }
starttime() { local s; s=$(cat "/proc/$1/stat" 2>/dev/null) || return 0; s=${s##*) }; set -- $s
  [ "$1" = Z ] || echo "${20}"; }   # nobody may reap an ended process in a container
# start <name> <command...>: in a session of its own, in the background
start() { local n=$1 p; shift; setsid "$@" >>"$LOGS/$n.out" 2>&1 </dev/null & p=$!; echo "$p $(starttime $p)" >"$PIDS/$n"; }
alive() { local p t; [ -s "$PIDS/$1" ] || return 1; read -r p t <"$PIDS/$1"; [ -n "$t" ] && [ "$(starttime "$p")" = "$t" ]; }
# the processes of the session that <name> leads, or led
members() { local p t now q
  [ -s "$PIDS/$1" ] || return 0
  read -r p t <"$PIDS/$1"; now=$(starttime "$p")
  [ -z "$now" ] || [ "$now" = "$t" ] || return 0
  for q in $(ps -o pid= -s "$p" 2>/dev/null); do [ "$(starttime "$q")" -ge "${t:-0}" ] 2>/dev/null && echo "$q"; done; return 0; }
names() { ls "$PIDS" 2>/dev/null || true; }
everyone() { local n; for n in $(names); do members "$n"; done; }
stop_all() { local p i
  for p in $(everyone); do kill "$p" 2>/dev/null; done
  for i in $(seq 12); do [ -z "$(everyone)" ] && break; sleep 0.25; done
  for p in $(everyone); do kill -9 "$p" 2>/dev/null; done
  for i in $(seq 20); do [ -z "$(everyone)" ] && break; sleep 0.1; done
  rm -f "$PIDS"/* 2>/dev/null; return 0; }
fail() { echo "openstack lab: $*" >&2; exit 1; }
# both give up at once when the process they wait for has ended
wait_port() { local i; for i in $(seq 900); do (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && return 0
  alive "$1" || { tail -5 "$LOGS/$1.out" >&2; fail "$1 ended; see $LOGS/$1.*"; }; sleep 0.1; done; fail "$1: port $2 never opened"; }
wait_http() { local i c; for i in $(seq 600); do
  c=$(curl -s -o /dev/null -m 10 -w '%{http_code}' "http://127.0.0.1:$2$3" || true)
  case $c in 000|50?) ;; *) return 0;; esac
  alive "$1" || { tail -5 "$LOGS/$1.out" >&2; fail "$1 ended; see $LOGS/$1.*"; }; sleep 0.2; done; fail "$1 never answered"; }
# wsgi <name> <port> <module> <threads>: one process, several threads, our filter in front
wsgi() { LAB_APP=$3 LAB_SERVICE=$1 start "$1" "$V/bin/uwsgi" --http-socket "127.0.0.1:$2" --pythonpath "$HERE" \
    --module gateway:application --master --lazy-apps --processes 1 --threads "$4" --enable-threads --die-on-term \
    --need-app --buffer-size 65535 --add-header "Connection: close" --disable-logging; }
