from tests.support.kube.fixtures import (
    cluster,
    embedded_cluster,
    embedded_server,
    namespace,
    real_server,
    server,
)

__all__ = ["cluster", "embedded_cluster", "embedded_server", "namespace", "real_server", "server"]
