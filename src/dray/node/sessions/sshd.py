"""An SSH server beside the command, for one connection: OpenSSH's ``sshd -i``, without a port.

It runs as the job's user and lets in one key, which the laptop has sent together with the server's
own. Both lie in a folder that goes with the connection.

sshd forgets all variables that it is started with. Each session asks for the command's through a
named pipe, and reads them from another: there are secrets in them, which belong neither into a list
of processes nor on a disk.
"""

import re

from ..processes.process import to_bytes
from .programs import Program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    from .link import Channel
    from .surroundings import Surroundings

LONGEST_KEY = 4096
KIND = "OPENSSH PRIVATE KEY-----"
PUBLIC_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/=]{1,1000}")
PRIVATE_KEY = re.compile("-----BEGIN {0}\n[A-Za-z0-9+/=\n]+-----END {0}\n".format(KIND))
# How the script below ends where no server can be started; sshd itself never ends like that.
NO_SSHD, NO_NAME = 117, 118
USER = "dray: user "  # what the script says first, on stderr

# Its package may be where no PATH leads, or come with an environment, as conda's does.
FIND = r"""
find_program() {
    name=$1 beside=$2
    shift 2
    old=$IFS IFS=:
    for one in $PATH; do
        IFS=$old
        set -- "$@" "$one" "${one%/bin}/$beside"
    done
    IFS=$old
    for one; do
        case $one in
            /*) [ -f "$one/$name" ] && [ -x "$one/$name" ] && echo "$one/$name" && return ;;
        esac
    done
}
find_sshd() {
    find_program sshd sbin /usr/sbin /usr/local/sbin /sbin /usr/lib/openssh /usr/lib/ssh
}
"""

# Told its folder, and what bash reads before a script: that could write to the connection.
# The server gets none of the variables, as libraries of an environment may not fit it.
START = r"""
d=$0
me=$(id -un 2>/dev/null) || exit NO_NAME
printf 'dray: user %s\n' "$me" >&2
sshd=$(find_sshd)
[ -n "$sshd" ] || exit NO_SSHD
if [ "$(id -u)" = 0 ] && [ ! -d /run/sshd ]; then
    mkdir -p /run/sshd 2>/dev/null && chmod 755 /run/sshd
fi
mkfifo -m 600 "$d/ask" || exit 1
saved=$(
    unset SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_ORIGINAL_COMMAND SSH_AUTH_SOCK TERM DISPLAY
    [ -z "$1" ] || export BASH_ENV="$1"
    export dray_folder="$PWD"
    export -p
    [ -z "$BASH_VERSION" ] || declare -fx
)
while read -r number; do
    case $number in
        end) kill -TERM 0 ;;
        '' | *[!0-9]*) ;;
        *) [ -p "$d/$number" ] && printf '%s\n' "$saved" >"$d/$number" & ;;
    esac
done <>"$d/ask" >/dev/null 2>&1 &
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
env -i PATH="$PATH" "$sshd" -i -e -f "$d/config"
code=$?
trap : TERM
kill -TERM 0
exit "$code"
"""
START = FIND + START.replace("NO_SSHD", str(NO_SSHD)).replace("NO_NAME", str(NO_NAME))

# What each session runs, whatever it is asked to.
SESSION = (
    FIND
    + r"""
asked=${SSH_ORIGINAL_COMMAND-}
unset SSH_ORIGINAL_COMMAND
d=${0%/*}
mkfifo -m 600 "$d/$$" && echo "$$" >"$d/ask" && . "$d/$$" 2>/dev/null
rm -f "$d/$$"
cd "$dray_folder" 2>/dev/null
unset dray_folder
for shell in "$SHELL" /bin/bash /bin/sh; do
    [ -x "$shell" ] && break
done
case $asked in
    '') exec "$shell" ;;
    internal-sftp*)
        server=$(find_program sftp-server libexec /usr/lib/openssh /usr/libexec/openssh \
            /usr/lib/ssh /usr/lib64/ssh /usr/libexec /usr/lib)
        [ -n "$server" ] && exec "$server"
        echo "there is no sftp-server here: use rsync, or scp -O" >&2
        exit 127
        ;;
esac
exec "$shell" -c "$asked"
"""
)

CONFIG = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin prohibit-password
StrictModes no
PidFile none
PermitUserRC no
PrintMotd no
PrintLastLog no
UseDNS no
MaxSessions 100
AllowTcpForwarding yes
AllowStreamLocalForwarding yes
AllowAgentForwarding yes
X11Forwarding no
Subsystem sftp internal-sftp
ForceCommand exec {shell} {folder}/session
LogLevel INFO
"""


class Sshd(Program):
    """``place`` is a private folder of this node."""

    def __init__(
        self, channel: "Channel", around: "Surroundings", place: str, record: "Dict[str, Any]"
    ) -> None:
        host_key = key_of(record, "host_key", PRIVATE_KEY)
        authorized = key_of(record, "authorized", PUBLIC_KEY)
        self.folder = around.folder_beside(place)
        seen = self.folder.inside
        try:
            shell = around.script_shell()
            content = {
                "host_key": host_key,
                "authorized_keys": authorized + "\n",
                "config": CONFIG.format(folder=seen, shell=shell),
                "session": SESSION,
            }
            self.folder.make({name: to_bytes(text) for name, text in content.items()})
            startup = around.take_variable("BASH_ENV")
            Program.__init__(self, channel, around, [shell, "-c", START, seen, startup])
        except BaseException:
            self.folder.remove()
            raise

    def closed(self) -> None:
        Program.closed(self)
        self.folder.remove()


def key_of(record: "Dict[str, Any]", name: str, form: "Any") -> str:
    found = record.get(name)
    if not isinstance(found, str) or len(found) > LONGEST_KEY or not form.fullmatch(found):
        raise ValueError("it is not understood: {}".format(name))
    return found
