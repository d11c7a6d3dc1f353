"""The settings of a Kubernetes client: the server to reach, timeouts and retries.

One rule: settings are validated once, here; all other code trusts the settings.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """The retries of a request that failed for a temporary reason."""

    attempts: int = 6
    """The most attempts to send a request. Six attempts, with the waits below, take some three seconds."""
    base_seconds: float = 0.1
    """The wait before the second attempt; it doubles from attempt to attempt."""
    cap_seconds: float = 5.0
    """The longest wait between two attempts, without the server's Retry-After."""
    retry_after_cap_seconds: float = 30.0
    """The longest Retry-After for which the client waits. If the server asks for more, the error is raised at once."""
    slow_seconds: float = 10.0
    """The time after the first attempt from which none is begun. A server that takes long to fail, because it waits for
    a webhook, is not asked six times: the caller hears of it."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"retries.attempts must be at least 1, not {self.attempts}")
        for name in ("base_seconds", "cap_seconds", "retry_after_cap_seconds", "slow_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"retries.{name} must not be negative, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The Kubernetes API server to connect to, and how.

    The first of these names the server: `kubeconfig`, the KUBECONFIG variable, ~/.kube/config, the service account of
    the pod that this process runs in.
    """

    kubeconfig: str = ""
    """The path of a kubeconfig file; empty for the places above."""
    context: str = ""
    """The context within the kubeconfig; empty for its current context."""
    connect_timeout: float = 5.0
    """The seconds to wait for a connection."""
    read_timeout: float = 30.0
    """The seconds that the server may be silent within one answer. Watches have their own limit, followed logs none."""
    pool_connections: int = 64
    """The number of idle connections to keep for reuse.

    Use more than there are threads and watches: a TLS handshake costs 22 ms of CPU time.
    """
    page_size: int = 500
    """The objects per page of a list."""
    requests_per_second: float = 0.0
    """A limit on our own requests; 0 means none, since the server limits them itself (priority and fairness, 429)."""
    burst: int = 100
    """The number of requests that may go out at once before requests_per_second limits them."""
    user_agent: str = "torchq"
    """The name of this client in the server's audit log."""
    permission_hint: str = ""
    """Advice for a missing permission; added to the error if the server reports one."""
    retries: RetrySettings = field(default_factory=RetrySettings)

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "read_timeout", "pool_connections", "page_size", "burst"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.requests_per_second < 0:
            raise ValueError(f"requests_per_second must not be negative, not {self.requests_per_second}")


@dataclass(frozen=True, slots=True)
class InformerSettings:
    """The settings of an informer."""

    watch_seconds: int = 240
    """The length of one watch. Then it is resumed, which spreads watches over servers and detects dead connections."""
    resync_seconds: float = 0.0
    """The period of `on_resync`; 0 means never."""
    backoff_base: float = 0.2
    """The longest wait after one failure; it doubles from failure to failure."""
    backoff_cap: float = 30.0
    """The longest wait between two failures."""
    healthy_seconds: float = 5.0
    """A watch of this length ends a run of failures. A shorter watch without an object counts as another failure."""
    quiet: bool = False
    """Whether failures are not worth a warning in the log, because `on_failure` says what has to be said."""

    def __post_init__(self) -> None:
        for name in ("watch_seconds", "backoff_base", "backoff_cap", "healthy_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.resync_seconds < 0:
            raise ValueError(f"resync_seconds must not be negative, not {self.resync_seconds}")
