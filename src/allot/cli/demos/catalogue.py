"""The demonstrations that there are."""

from __future__ import annotations

from allot.cli.demos.script import Demo, Run, Say, Show, Wait

ONE_GPU = Demo(
    name="one-gpu",
    title="two pods, one GPU",
    namespace="gpu-test1",
    nodes=({"name": "gpu-node", "profile": "Standard_NC4as_T4_v3"},),
    steps=(
        Say("A driver on the node has published its devices, with what they are:"),
        Run("kubectl get resourceslices"),
        Run("allot get devices"),
        Say("Two pods ask for one GPU each, by a template from which every pod gets a claim of its own:"),
        Show("ResourceClaimTemplate", "single-gpu"),
        Run("kubectl apply -f one-gpu.yaml"),
        Wait(("pod1",), "Running"),
        Wait(("pod2",), "Unschedulable"),
        Run("kubectl get pods -n gpu-test1"),
        Say("The first pod sees exactly what it was given:"),
        Run("kubectl logs -n gpu-test1 pod1"),
        Say("Why does the second one wait, and what would help?"),
        Run("allot explain -n gpu-test1 pod/pod2", lines_max=5, code=1),
        Say("When the first pod goes, its GPU is free, and the second one runs:"),
        Run("kubectl delete pod -n gpu-test1 pod1"),
        Wait(("pod2",), "Running"),
        Run("kubectl get pods -n gpu-test1"),
    ),
)

SHARE_IN_POD = Demo(
    name="share-in-pod",
    title="two containers of a pod on one GPU",
    namespace="share-in-pod",
    nodes=({"name": "gpu-node", "profile": "t4"},),
    steps=(
        Say("Both containers name the same claim of their pod:"),
        Show("Pod", "pod"),
        Run("kubectl apply -f share-in-pod.yaml"),
        Wait(("pod",), "Running"),
        Say("So both see the same GPU:"),
        Run("kubectl logs -n share-in-pod pod -c ctr0"),
        Run("kubectl logs -n share-in-pod pod -c ctr1"),
        Run("allot tree -n share-in-pod pod/pod"),
    ),
)

SHARE_ACROSS_PODS = Demo(
    name="share-across-pods",
    title="two pods on one GPU, by one claim",
    namespace="share-across-pods",
    nodes=({"name": "gpu-node", "profile": "t4"},),
    steps=(
        Say("Here the claim is made once, by name, and both pods use it:"),
        Show("ResourceClaim", "shared-gpu"),
        Run("kubectl apply -f share-across-pods.yaml"),
        Wait(("pod1", "pod2"), "Running"),
        Run("kubectl get pods,resourceclaims -n share-across-pods"),
        Run("kubectl logs -n share-across-pods pod1"),
        Run("kubectl logs -n share-across-pods pod2"),
        Say("With a template in its place each pod would have a claim, and so a GPU, of its own."),
    ),
)

MIG = Demo(
    name="mig",
    title="an H100 is cut in two sizes, on demand",
    namespace="mig",
    nodes=(
        {"name": "gpu-node", "profile": "a3-highgpu-1g", "drivers": {"gpu": {"featureGates": {"DynamicMIG": True}}}},
    ),
    steps=(
        Say(
            "The driver offers the card whole, and as everything it could be cut into; counters keep what is taken in bounds:"
        ),
        Run("allot top devices --by node"),
        Say("Production wants 3g.40gb, development 1g.10gb:"),
        Show("ResourceClaimTemplate", "mig-3g-40gb"),
        Run("kubectl apply -f mig.yaml"),
        Wait(("prod", "dev"), "Running"),
        Say("The partitions were made when the pods came; each container sees its own:"),
        Run("kubectl logs -n mig prod"),
        Run("kubectl logs -n mig dev"),
        Run("allot top devices --by node"),
        Say("A whole GPU is not to be had from this card now, and allot can say why:"),
        Run("allot plan mig-whole.yaml", lines_max=6, code=1),
    ),
)

MPS = Demo(
    name="mps",
    title="two pods on one GPU at once, each within a memory limit",
    namespace="mps",
    nodes=(
        {"name": "gpu-node", "profile": "a2-highgpu-1g", "drivers": {"gpu": {"featureGates": {"MPSSupport": True}}}},
    ),
    steps=(
        Say(
            "One claim for both pods, with NVIDIA's Multi-Process Service: half of the threads and 15Gi of memory for each process:"
        ),
        Show("ResourceClaim", "mps-gpu"),
        Run("kubectl apply -f mps.yaml"),
        Wait(("modest",), "Running"),
        Wait(("greedy",), "Failed"),
        Say("The modest one takes 10Gi, the greedy one 20Gi, which is over the limit:"),
        Run("kubectl logs -n mps modest"),
        Run("kubectl logs -n mps greedy"),
        Run("kubectl get pods -n mps"),
    ),
)

TIME_SLICING = Demo(
    name="time-slicing",
    title="two pods take turns on one GPU",
    namespace="time-slicing",
    nodes=(
        {
            "name": "gpu-node",
            "profile": "a2-highgpu-1g",
            "drivers": {"gpu": {"featureGates": {"TimeSlicingSettings": True}}},
        },
    ),
    steps=(
        Say("One claim for both pods, with long time slices:"),
        Show("ResourceClaim", "gpu-claim"),
        Run("kubectl apply -f time-slicing.yaml"),
        Wait(("inference-0", "inference-1"), "Running"),
        Run("kubectl get pods,resourceclaims -n time-slicing"),
        Run("kubectl logs -n time-slicing inference-0"),
        Run("kubectl logs -n time-slicing inference-1"),
        Say("The most frequent mistake is the same configuration in a template. Lint knows it:"),
        Run("allot lint time-slicing-mistake.yaml", code=1),
    ),
)

ALIGNMENT = Demo(
    name="alignment",
    title="GPU, network card and CPUs side by side",
    namespace="alignment",
    nodes=({"name": "gpu-node", "profile": "a3-ultragpu-8g", "drivers": {"cpu": {}}},),
    steps=(
        Say("A claim for a GPU and a network card on the same PCIe root, and four CPUs of that card's NUMA node:"),
        Show("ResourceClaim", "aligned"),
        Run("kubectl apply -f alignment.yaml"),
        Wait(("pod",), "Running"),
        Say("What the constraints tie together can be seen in the devices' attributes:"),
        Run("allot tree -n alignment pod/pod"),
    ),
)

TPU = Demo(
    name="tpu",
    title="all TPU chips of a node",
    namespace="tpu",
    nodes=({"name": "tpu-node", "profile": "ct6e-standard-4t"},),
    steps=(
        Say("TPU chips of a node are used together. The claim asks for all of them:"),
        Show("ResourceClaimTemplate", "all-tpus"),
        Run("kubectl apply -f tpu.yaml"),
        Wait(("pod",), "Running"),
        Run("kubectl logs -n tpu pod"),
        Run("allot top devices --by class"),
    ),
)

GANG = Demo(
    name="gang",
    title="eight pods that start together or not at all",
    namespace="gang",
    feature_gates="GenericWorkload=true",
    nodes=({"name": "gpu-node", "profile": "h100x8"},),
    steps=(
        Say("A notebook holds one of eight GPUs:"),
        Run("kubectl apply -f gang-notebook.yaml"),
        Wait(("notebook",), "Running"),
        Say("A training job of eight workers, a GPU each, wants all of them at once:"),
        Show("PodGroup", "training"),
        Run("kubectl apply -f gang.yaml"),
        Wait(tuple(f"worker-{number}" for number in range(8)), "Unschedulable"),
        Say("Seven would fit, but none has started: half a gang would only hold GPUs that others could use."),
        Run("allot explain -n gang podgroup/training", lines_max=6, code=1),
        Run("kubectl delete pod -n gang notebook"),
        Wait(tuple(f"worker-{number}" for number in range(8)), "Running"),
        Run("kubectl get pods -n gang"),
    ),
)

DEMOS = (ONE_GPU, SHARE_IN_POD, SHARE_ACROSS_PODS, MIG, MPS, TIME_SLICING, ALIGNMENT, TPU, GANG)
