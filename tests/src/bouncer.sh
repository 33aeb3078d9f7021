# Runs pgbouncer as long as standard input stays open: sh -c "…" NAME TEMP SERVER SETTINGS PROGRAM
# Prints "ready FOLDER" (settings, log and socket are in it), "missing", or what failed, on standard output.
trap '' HUP INT PIPE QUIT TERM
PATH=$PATH:/usr/sbin:/usr/local/sbin
command -v "$4" >/dev/null || { echo missing; exit 1; }
folder=$(mktemp -d "$1/advisory-XXXXXX") || exit 1
trap 'kill -KILL "$pid" 2>/dev/null; rm -rf "$folder"' EXIT
# The port is that of the server, so that the addresses of both have one form.
cat >"$folder/settings" <<CONF
[databases]
* = host='$2' port=5432 user=postgres
[pgbouncer]
unix_socket_dir = $folder
listen_port = 5432
auth_type = any
logfile = $folder/log
$3
CONF
"$4" -q "$folder/settings" >"$folder/setup" 2>&1 </dev/null &
pid=$!
until grep -q 'process up' "$folder/log" 2>/dev/null; do
    kill -0 "$pid" 2>/dev/null || { cat "$folder/setup" "$folder/log" 2>/dev/null; exit 1; }
    sleep 0.02
done
echo "ready $folder"
exec >/dev/null
read -r _
