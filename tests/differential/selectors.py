"""Label and field selectors: valid selectors, and selectors that the grammar refuses.

One rule: this module has only texts.
"""
# ruff: noqa: E501

SELECTORS = [
    "app=a", "app!=a", "app in (a,b)", "app notin (a)", "app", "!app", "app=a,tier=x", "app==b", "tier in (x),app", "nope=1",
    "app in a", "app in (", "=", "a b", "app=a,", ",app", "app=a b", "app=-", "app>1", "app>x", "!", "app in ()", "app=ü", "a/b/c=d",
    "app = a", " app in ( a , b ) ", "app=" + "a" * 70, "/x=1", "app!", "app=(a)", "app notin", "app,app=a", "app=a,app=b", "x.y/app=a", "app in (a",
]  # fmt: skip
FIELDS = ["metadata.name=one", "metadata.name!=one", "metadata.namespace=nowhere", "spec.nodeName=n1", "spec.nodeName=", "status.phase=Pending", "status.phase!=Running",
          "spec.size=1", "metadata.name", "metadata.name=one,metadata.name=two", "metadata.labels.app=a", "=", "a=b", "metadata.name in (one)", "type=Opaque", "reason=Why",
          "involvedObject.name=p", "spec.unschedulable=true", "spec.restartPolicy=Always", "metadata.uid=x", "metadata.name==one", "metadata.name=a\\,b", "status.podIP=1",
          "spec.clusterIP=None", "spec.type=ClusterIP", "involvedObject.kind=Pod", "source=x", "spec.serviceAccountName=sa", "spec.hostNetwork=true", "status.nominatedNodeName="]  # fmt: skip
