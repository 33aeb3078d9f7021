# Fetches a program of a newer Debian than this machine's, with its libraries, into a folder where it runs:
#   sh debian.sh PACKAGE FOLDER SUITE...
# It uses the archive of this machine's own packages; the last suite wins. It needs no root, and installs nothing. Each
# program of the package is a script that starts the real one with the libraries that it was built for.
set -eu
package=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
shift 2
key=/usr/share/keyrings/debian-archive-keyring.gpg
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
[ -n "$archive" ] || { echo "no archive of Debian among this machine's" >&2; exit 1; }
mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial"
: >"$folder/apt/status"
for suite; do
    echo "deb [signed-by=$key] $archive $suite main"
done >"$folder/apt/sources.list"
cat >"$folder/apt/apt.conf" <<CONF
Dir::Etc::sourcelist "$folder/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "$folder/apt";
Dir::State::status "$folder/apt/status";
Dir::Cache "$folder/apt";
APT::Default-Release "$suite";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
CONF
export APT_CONFIG="$folder/apt/apt.conf"
apt-get -qq update
# Libraries, and the package itself; not the programs that only its installation needs.
apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$package" |
    grep -E "^(lib|postgresql-client-[0-9]+\$)" | grep -v -e perl -e '^libc-' -e ':' | sort -u >"$folder/apt/libraries"
(cd "$folder/apt" && xargs apt-get -qq download "$package" <libraries)
for deb in "$folder"/apt/*.deb; do
    dpkg-deb -x "$deb" "$folder"
    rm "$deb"
done
libraries=$(dirname "$(find "$folder/usr/lib" -name 'ld-linux*' | head -n 1)")
loader=$(basename "$libraries"/ld-linux*)
for program in "$folder"/usr/bin/* "$folder"/usr/sbin/* "$folder"/usr/lib/postgresql/*/bin/*; do
    [ -f "$program" ] && [ ! -h "$program" ] && [ "$(head -c 4 "$program" | tail -c 3)" = ELF ] || continue
    mv "$program" "$program.real"
    # Relative to its own folder, since that may be moved.
    cat >"$program" <<WRAPPER
#!/bin/sh
libraries=\${0%/*}/$(realpath --relative-to "$(dirname "$program")" "$libraries")
exec "\$libraries/$loader" --library-path "\$libraries" --argv0 "\$0" "\$0.real" "\$@"
WRAPPER
    chmod 755 "$program"
done
rm -r "$folder/apt"
