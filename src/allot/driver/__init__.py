"""The SDK for drivers: declare devices, prepare and unprepare them; everything else is done here.

Works under allot's node agent and under the kubelet alike. Knows: ResourceSlices, the plugin protocol, CDI files. Does not
know: any particular hardware.
"""
