"""Host names and addresses of this machine.

One rule: no look-up of names; a name other than `localhost` counts as the name of another machine.
"""

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is the name or an address of this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
