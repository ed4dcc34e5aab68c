"""Objects that several tests create. Names outside of namespaces are filled in with `{name}`."""

from __future__ import annotations

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web, tier: front}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "busybox:1", command: [sleep, "3600"], ports: [{containerPort: 80}],
     resources: {requests: {cpu: 100m, memory: 64Mi}}}
"""

NODE = """
apiVersion: v1
kind: Node
metadata: {name: NAME, labels: {zone: a}}
spec: {podCIDR: 10.1.0.0/24}
"""

NODE_STATUS = (
    '{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"ready",'
    '"lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}],'
    '"capacity":{"cpu":"4","memory":"8Gi","pods":"110"},"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"},'
    '"addresses":[{"type":"InternalIP","address":"192.0.2.7"}],'
    '"nodeInfo":{"kubeletVersion":"v1.37.0","osImage":"Linux","kernelVersion":"6.1","containerRuntimeVersion":"containerd://2.1",'
    '"architecture":"amd64","bootID":"b","machineID":"m","systemUUID":"s","operatingSystem":"linux","kubeProxyVersion":""}}}'
)

CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared, labels: {app: web}}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
"""

TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: single}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
"""

DEVICE_CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: NAME}
spec: {selectors: [{cel: {expression: 'device.driver == "fake.example.com"'}}]}
"""

SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: NAME}
spec:
  driver: fake.example.com
  nodeName: NAME-node
  pool: {name: NAME-pool, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: gpu-0, attributes: {model: {string: A100}, index: {int: 0}}, capacity: {memory: {value: 80Gi}}}
  - {name: gpu-1, attributes: {index: {int: 1}}, capacity: {memory: {value: 40Gi}}}
"""

TAINT_RULE = """
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: NAME}
spec:
  deviceSelector: {driver: fake.example.com}
  taint: {key: example.com/maintenance, value: "yes", effect: NoExecute}
"""

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: "nginx:1", ports: [{containerPort: 80}]}
"""

CONFIG_MAPS = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {set: one}}, data: {rank: "3"}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b, labels: {set: one}}, data: {rank: "1"}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: c, labels: {set: two}}, data: {rank: "2"}}
"""


def named(manifest: str, name: str) -> str:
    """A manifest of an object outside of namespaces, with its name."""
    return manifest.replace("NAME", name)
