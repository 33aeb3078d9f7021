# Runs a PostgreSQL server as long as standard input stays open: sh -c "…" NAME BIN TEMP KIND [PORT [COMMAND]]
# Prints "ready FOLDER" (data, log and socket are in it), or what failed, on standard output. With PORT it also listens
# on 127.0.0.1, with the password in FOLDER/password: a socket's folder is closed to others, a port is not.
# KIND `follows FOLDER` is a standby of the server in that folder. KIND `template` is not started: with its folder as TEMPLATE another
# server has the same files, a second earlier. With COMMAND, `postgres` is the last argument of that command, which runs in FOLDER.
trap '' HUP INT PIPE QUIT TERM
bin=$1 temp=$2 primary=${3#follows }
# In memory, if there is room and no other folder was given: creating a database then takes a tenth of the time.
if [ -z "$TMPDIR" ] && [ -w /dev/shm ]; then
    room=$(df -Pk /dev/shm | awk 'NR == 2 { print $4 }')
    [ "${room:-0}" -lt 4194304 ] || temp=/dev/shm
fi
folder=$(mktemp -d "$temp/advisory-XXXXXX") || exit 1
trap '"$bin/pg_ctl" -D "$folder/data" -m immediate stop >/dev/null 2>&1; rm -rf "$folder"' EXIT
export HOME="$folder"
# Messages are in German, if this machine has them: no error may be recognized by its text. Nothing else uses that locale,
# since compiling it would take a second.
printf 'LC_MESSAGES\ncopy "de_DE"\nEND LC_MESSAGES\n' >"$folder/german"
localedef -c -i "$folder/german" -f ANSI_X3.4-1968 "$folder/de_DE" >/dev/null 2>&1
if [ -e "$folder/de_DE/LC_MESSAGES" ]; then export LOCPATH="$folder"; fi
{
    od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$folder/password" &&
    # The server need not survive a crash of this machine, so nothing has to reach its disk. Everything else is as PostgreSQL
    # ships it, except for prepared transactions, locks without a session, and enough connections for as many tests as a
    # machine has processors.
    if [ "$primary" != "$3" ]; then
        # Not by `pg_basebackup`, which servers from a registry do not have.
        "$bin/pg_ctl" -D "$primary/data" -m fast -w stop && cp -Rp "$primary/data" "$folder/data" &&
            LOCPATH="$primary" "$bin/pg_ctl" -D "$primary/data" -l "$primary/log" -w -t 60 start &&
            echo "primary_conninfo = 'host=$primary user=postgres'" >>"$folder/data/postgresql.auto.conf" &&
            touch "$folder/data/standby.signal"
    elif [ -n "$TEMPLATE" ]; then
        cp -Rp "$TEMPLATE/data" "$TEMPLATE/password" "$folder"
    else
        "$bin/initdb" -D "$folder/data" -U postgres --auth-local=trust --auth-host=scram-sha-256 --pwfile="$folder/password" \
            -E UTF8 --locale=C --no-sync --no-instructions
    fi &&
    cat >>"$folder/data/postgresql.conf" <<CONF &&
listen_addresses = '${4:+127.0.0.1}'
unix_socket_directories = '$folder'
port = ${4:-5432}
max_connections = 1000
fsync = off
max_prepared_transactions = 10
CONF
    if [ "$3" = standby ]; then touch "$folder/data/standby.signal"; fi &&
    if [ -n "$5" ]; then
        printf '#!/bin/sh\ncd "%s" && exec %s "%s/postgres" "$@"\n' "$folder" "$5" "$bin" >"$folder/postgres" &&
            chmod 700 "$folder/postgres"
    fi &&
    if [ "$3" != template ]; then
        "$bin/pg_ctl" ${5:+-p "$folder/postgres"} -D "$folder/data" -l "$folder/log" -w -t 60 start
    fi
} >"$folder/setup" 2>&1 </dev/null || { cat "$folder/setup" "$folder/log" 2>/dev/null; exit 1; }
echo "ready $folder"
exec >/dev/null
read -r _
