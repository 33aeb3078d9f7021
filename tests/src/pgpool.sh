# Runs Pgpool-II as long as standard input stays open: sh -c "…" NAME TEMP PRIMARY [STANDBY SETTINGS]
# Prints "ready FOLDER" (settings, log and socket are in it), "missing", or what failed, on standard output. With the folder
# of a standby's socket, statements that only read go there; SETTINGS are more lines of its settings.
trap '' HUP INT PIPE QUIT TERM
PATH=$PATH:/usr/sbin:/usr/local/sbin
command -v pgpool >/dev/null || { echo missing; exit 1; }
folder=$(mktemp -d "$1/advisory-XXXXXX") || exit 1
stop() {
    kill -INT "$pid" 2>/dev/null
    tries=0
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.02
        tries=$((tries + 1))
        # In the handler of that signal a process can wait for a lock that it holds itself: 4.3 logs there, which reads the time
        # zone. Without its processes the first one ends, and removes what they shared.
        [ "$tries" -lt 250 ] || kill -KILL $(cat "/proc/$pid/task/$pid/children") 2>/dev/null
    done
    rm -rf "$folder"
}
trap stop EXIT
cat >"$folder/settings" <<CONF
backend_clustering_mode = 'streaming_replication'
listen_addresses = ''
port = 5432
socket_dir = '$folder'
pcp_socket_dir = '$folder'
pcp_listen_addresses = ''
pid_file_name = '$folder/pid'
logdir = '$folder'
sr_check_period = 0
health_check_period = 0
load_balance_mode = on
num_init_children = 8
enable_shared_relcache = off
backend_hostname0 = '$2'
backend_port0 = 5432
backend_weight0 = $([ -n "$3" ] && echo 0 || echo 1)
backend_flag0 = 'ALWAYS_PRIMARY|DISALLOW_TO_FAILOVER'
CONF
if [ -n "$3" ]; then
    cat >>"$folder/settings" <<CONF
backend_hostname1 = '$3'
backend_port1 = 5432
backend_weight1 = 1
backend_flag1 = 'DISALLOW_TO_FAILOVER'
$4
CONF
fi
: >"$folder/pcp"
: >"$folder/hba"
pgpool -n -f "$folder/settings" -F "$folder/pcp" -a "$folder/hba" >"$folder/log" 2>&1 </dev/null &
pid=$!
until grep -q 'successfully started' "$folder/log" 2>/dev/null; do
    kill -0 "$pid" 2>/dev/null || { cat "$folder/log"; exit 1; }
    sleep 0.02
done
echo "ready $folder"
exec >/dev/null
read -r _
