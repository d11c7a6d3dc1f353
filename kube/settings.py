"""How to reach a Kubernetes API and how patient to be with it.

One rule: validated once, here; whoever is handed one of these trusts it.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """When a request that failed for a passing reason is sent again."""

    attempts: int = 6
    """How often a request is sent at most. Six, with the waits below, ride out some three seconds."""
    base_seconds: float = 0.1
    """The wait before the second attempt; it doubles from attempt to attempt."""
    cap_seconds: float = 5.0
    """No wait of our own choice is longer."""
    retry_after_cap_seconds: float = 30.0
    """A server that asks for a longer wait (Retry-After) is not waited for: the error is raised at once."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"retries.attempts must be at least 1, not {self.attempts}")
        for name in ("base_seconds", "cap_seconds", "retry_after_cap_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"retries.{name} must not be negative, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Which Kubernetes API to talk to, and how.

    The server is the one that `kubeconfig` names, else the KUBECONFIG variable, else ~/.kube/config, else the cluster
    that this process runs in as a pod.
    """

    kubeconfig: str = ""
    """Path of a kubeconfig file; empty: the usual places."""
    context: str = ""
    """Context within the kubeconfig; empty: its current one."""
    connect_timeout: float = 5.0
    """Seconds to wait for a connection."""
    read_timeout: float = 30.0
    """Seconds the server may be silent within one answer. Watches have their own limit, followed logs none."""
    pool_connections: int = 64
    """Idle connections kept for reuse. More than threads and watches in use: a TLS handshake costs 22 ms of CPU."""
    page_size: int = 500
    """Objects asked for per page of a list."""
    requests_per_second: float = 0.0
    """A limit on our own requests; 0 means none, since the server has one (priority and fairness) and answers 429."""
    burst: int = 100
    """How many requests may go out at once before requests_per_second limits them."""
    user_agent: str = "torchq"
    """How we introduce ourselves in the server's audit log."""
    permission_hint: str = ""
    """What to do about a permission that is missing; added to the error when the server says that one is."""
    retries: RetrySettings = field(default_factory=RetrySettings)

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "read_timeout", "pool_connections", "page_size", "burst"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.requests_per_second < 0:
            raise ValueError(f"requests_per_second must not be negative, not {self.requests_per_second}")


@dataclass(frozen=True, slots=True)
class InformerSettings:
    """How an informer follows its resource."""

    watch_seconds: int = 240
    """How long one watch is asked for; then it is resumed, which spreads watches over servers and finds dead ones."""
    resync_seconds: float = 0.0
    """The period of `on_resync`; 0 means never."""
    backoff_base: float = 0.2
    """The longest wait after one failure; it doubles from failure to failure."""
    backoff_cap: float = 30.0
    """No wait between failures is longer."""
    healthy_seconds: float = 5.0
    """A watch that lived so long ends a run of failures. One that ends sooner, with nothing in it, prolongs it."""

    def __post_init__(self) -> None:
        for name in ("watch_seconds", "backoff_base", "backoff_cap", "healthy_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.resync_seconds < 0:
            raise ValueError(f"resync_seconds must not be negative, not {self.resync_seconds}")
