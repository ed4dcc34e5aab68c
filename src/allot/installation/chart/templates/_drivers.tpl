{{- /* What the drivers are: name, classes, and what of the node each needs to see. */ -}}
{{- define "allot.driverFacts" -}}
gpu:
  driver: gpu.nvidia.com
  privileged: true
  classes:
  - {name: gpu.nvidia.com, expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'", counted: true}
  - {name: mig.nvidia.com, expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"}
  - {name: vfio.gpu.nvidia.com, expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'vfio'"}
amd:
  driver: gpu.amd.com
  sys: true
  classes:
  - {name: gpu.amd.com, expression: "device.driver == 'gpu.amd.com'", counted: true}
nic:
  driver: dra.net
  privileged: true
  hostNetwork: true
  sys: true
  classes:
  - {name: dra.net, expression: 'device.driver == "dra.net"'}
  - {name: mrdma.google.com, expression: 'device.driver == "dra.net" && device.attributes["dra.net"].rdma'}
cpu:
  driver: dra.cpu
  sys: true
  classes:
  - {name: dra.cpu, expression: 'device.driver == "dra.cpu"'}
tpu:
  driver: tpu.google.com
  sys: true
  dev: true
  # Programs in containers write there.
  logs: /tmp/tpu_logs
  classes:
  - {name: tpu.google.com, expression: 'device.driver == "tpu.google.com"'}
{{- end -}}
