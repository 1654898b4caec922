#!/usr/bin/env bash
# Run the README's two commands from a clean checkout of HEAD on a minimal Debian:
#
#   tests/nightly/fresh_debian.sh trixie                     Python 3.13
#   tests/nightly/fresh_debian.sh sid 'make quick'           the newest Python of Debian
#   USER_OF_TESTS=ann tests/nightly/fresh_debian.sh bookworm as an ordinary user
#
# Needs root and debootstrap. The system stays in $SYSTEMS (default: /var/tmp), so that the next run
# of a suite takes no time to prepare.
set -euo pipefail
suite=${1:?name a suite of Debian, for example trixie}
command=${2:-make demo && make test}
system=${SYSTEMS:-/var/tmp}/debian-$suite
user=${USER_OF_TESTS:-root}
checkout=$(git rev-parse --show-toplevel)

if [ ! -e "$system/usr/bin/python3" ]; then
    debootstrap --variant=minbase --include=python3,python3-venv,make,git,ca-certificates \
        "$suite" "$system" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"}
fi

# The network of this machine: names, package indexes and certificates.
cp /etc/resolv.conf /etc/hosts "$system/etc/"
[ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$system/etc/"
cp -r /etc/ssl/certs "$system/etc/ssl/"

mounted=()
end() {
    for place in "${mounted[@]}"; do umount "$system/$place" || true; done
}
trap end EXIT
attach() {
    mount "${@:2}" "$system/$1"
    mounted=("$1" "${mounted[@]}")
}
attach proc -t proc proc
attach dev --bind /dev
attach dev/pts -t devpts devpts -o ptmxmode=0666
attach dev/shm -t tmpfs tmpfs

home=/srv/nftsync
rm -rf "$system$home"
git clone --quiet "$checkout" "$system$home"
if [ "$user" != root ]; then
    chroot "$system" id "$user" >/dev/null 2>&1 || chroot "$system" useradd --create-home "$user"
    chroot "$system" chown -R "$user" "$home"
fi
chroot "$system" python3 --version
chroot "$system" su "$user" --command "cd $home && $command"
