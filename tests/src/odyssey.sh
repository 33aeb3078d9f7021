# Runs Odyssey as long as standard input stays open: sh -c "…" NAME TEMP SERVER PORT RULES PROGRAM
# Prints "ready FOLDER" (settings and log are in it), "missing", or what failed, on standard output.
trap '' HUP INT PIPE QUIT TERM
command -v "$5" >/dev/null || { echo missing; exit 1; }
folder=$(mktemp -d "$1/advisory-XXXXXX") || exit 1
trap 'kill -KILL "$pid" 2>/dev/null; rm -rf "$folder"' EXIT
# A storage without a host is the server on the socket.
cat >"$folder/settings" <<CONF
daemonize no
unix_socket_dir "$2"
unix_socket_mode "0777"
log_to_stdout yes
log_format "%p %t %l [%i %s] (%c) %m\n"
workers 1
listen {
    host "127.0.0.1"
    port $3
}
storage "server" {
    type "remote"
    port 5432
}
database default {
    user default {
        authentication "none"
        storage "server"
        storage_user "postgres"
        $4
    }
}
CONF
"$5" "$folder/settings" >"$folder/log" 2>&1 </dev/null &
pid=$!
until grep -q 'listening on' "$folder/log" 2>/dev/null; do
    kill -0 "$pid" 2>/dev/null || { cat "$folder/log"; exit 1; }
    sleep 0.02
done
echo "ready $folder"
exec >/dev/null
read -r _
