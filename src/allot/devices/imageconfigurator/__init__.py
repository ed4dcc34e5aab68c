"""A controller for the driver `image-configurator.x-k8s.io`: sets containers' images according to the devices of their pod.

It publishes one device for all nodes, which any number of claims can have, with a binding condition: a pod that claims it is not bound to its node before
its image is what the claim's parameters (ImageConfig) say for the devices that were chosen. Nothing is done on nodes (`skipNodeOperations`).

    images        pure: which images a pod gets
    controller    combines these
"""
