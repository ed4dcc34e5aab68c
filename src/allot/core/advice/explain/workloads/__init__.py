"""Why a workload, volume claim or Service is not as wanted, from its pods, conditions and events. Start with `answer`."""
