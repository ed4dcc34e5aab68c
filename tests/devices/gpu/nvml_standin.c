/* A small NVML for tests: two H100 with MIG and one L4 without, all in memory. The layout of structures follows nvml.h and is
 * written down here once more, so that a mistake on either side shows. Functions that begin with standin_ are for tests. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10,
       GPU_IS_LOST = 15, IN_USE = 19, INSUFFICIENT_RESOURCES = 23 };
enum { DEVICES = 3, INSTANCES = 8, PROFILES = 7 };

typedef struct { unsigned start, size; } placement_t;
typedef struct { char busIdLegacy[16]; unsigned domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } pci_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version, value; } addressing_t;
typedef struct {
    unsigned version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
        encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
    char name[96];
} profile_info_t;
typedef struct {
    unsigned id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
        sharedEncoderCount, sharedJpegCount, sharedOfaCount;
} compute_profile_info_t;

struct device;
typedef struct instance {
    int is_used;
    struct device *device;
    unsigned id, profile;
    placement_t placement;
    int has_compute;
    /* The compute instance and the MIG device are told apart by their addresses. */
    char compute_handle, mig_handle;
} instance_t;
typedef struct device {
    unsigned index;
    int has_mig, mig_mode, compute_mode, is_lost, has_events;
    instance_t instances[INSTANCES];
} device_t;
typedef struct { device_t *device; unsigned id, profileId; placement_t placement; } instance_info_t;
typedef struct { device_t *device; instance_t *instance; unsigned id, profileId; placement_t placement; } compute_info_t;
typedef struct { device_t *device; unsigned long long type, data; unsigned gpuInstanceId, computeInstanceId; } event_t;

static const struct { unsigned number, id, slices, memory, sm, ce, dec, jpg, ofa, size, starts[8]; int count; const char *name; }
profiles[PROFILES] = {
    {0, 19, 1, 9984, 16, 1, 1, 1, 0, 1, {0, 1, 2, 3, 4, 5, 6}, 7, "MIG 1g.10gb"},
    {1, 14, 2, 20096, 32, 2, 2, 2, 0, 2, {0, 2, 4}, 3, "MIG 2g.20gb"},
    {2, 9, 3, 40448, 60, 3, 3, 3, 0, 4, {0, 4}, 2, "MIG 3g.40gb"},
    {3, 5, 4, 40448, 64, 4, 4, 4, 0, 4, {0}, 1, "MIG 4g.40gb"},
    {4, 0, 7, 81152, 132, 8, 7, 7, 1, 8, {0}, 1, "MIG 7g.80gb"},
    {7, 20, 1, 9984, 16, 1, 1, 1, 1, 1, {0, 1, 2, 3, 4, 5, 6}, 7, "MIG 1g.10gb+me"},
    {9, 15, 1, 20096, 26, 1, 1, 1, 0, 2, {0, 2, 4, 6}, 4, "MIG 1g.20gb"},
};

static device_t devices[DEVICES];
static char event_set;
static struct { int device; unsigned xid; } pending = {-1, 0};

void standin_reset(void) {
    memset(devices, 0, sizeof devices);
    for (unsigned i = 0; i < DEVICES; i++) { devices[i].index = i; devices[i].has_mig = i < 2; }
    pending.device = -1;
}
void standin_xid(int device, unsigned xid) { pending.device = device; pending.xid = xid; }
void standin_lose(int device) { devices[device].is_lost = 1; }
int standin_compute_mode(int device) { return devices[device].compute_mode; }

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) {
    switch (code) {
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case TIMEOUT: return "Timeout";
    case GPU_IS_LOST: return "GPU is lost";
    case IN_USE: return "In use by another client";
    case INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    default: return "Unknown Error";
    }
}
static int text(char *buffer, unsigned length, const char *value) {
    if (strlen(value) >= length) return INSUFFICIENT_SIZE;
    strcpy(buffer, value);
    return SUCCESS;
}
int nvmlSystemGetDriverVersion(char *buffer, unsigned length) { return text(buffer, length, "580.95.05"); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = DEVICES; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **device) {
    if (index >= DEVICES) return INVALID_ARGUMENT;
    *device = &devices[index];
    return SUCCESS;
}
static instance_t *by_mig_handle(void *handle) {
    for (int d = 0; d < DEVICES; d++)
        for (int i = 0; i < INSTANCES; i++)
            if (devices[d].instances[i].is_used && (void *)&devices[d].instances[i].mig_handle == handle)
                return &devices[d].instances[i];
    return NULL;
}
int nvmlDeviceGetUUID(device_t *device, char *buffer, unsigned length) {
    char value[96];
    instance_t *instance = by_mig_handle(device);
    if (instance)
        sprintf(value, "MIG-00000000-0000-0000-%04u-%04u%08u", instance->device->index, instance->profile,
                instance->placement.start);
    else
        sprintf(value, "GPU-00000000-0000-0000-0000-%012u", device->index);
    return text(buffer, length, value);
}
#define ALIVE(device) if ((device)->is_lost) return GPU_IS_LOST
int nvmlDeviceGetName(device_t *d, char *buffer, unsigned length) {
    ALIVE(d);
    return text(buffer, length, d->has_mig ? "NVIDIA H100 80GB HBM3" : "NVIDIA L4");
}
int nvmlDeviceGetMinorNumber(device_t *d, unsigned *minor) { ALIVE(d); *minor = d->index; return SUCCESS; }
int nvmlDeviceGetBrand(device_t *d, unsigned *brand) { ALIVE(d); *brand = 14; return SUCCESS; }
int nvmlDeviceGetArchitecture(device_t *d, unsigned *a) { ALIVE(d); *a = d->has_mig ? 9 : 8; return SUCCESS; }
int nvmlDeviceGetCudaComputeCapability(device_t *d, int *major, int *minor) {
    ALIVE(d);
    *major = d->has_mig ? 9 : 8;
    *minor = d->has_mig ? 0 : 9;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(device_t *d, memory_t *memory) {
    ALIVE(d);
    memory->total = (d->has_mig ? 81559ULL : 23034ULL) << 20;
    memory->used = 0;
    memory->free = memory->total;
    return SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(device_t *d, pci_t *pci) {
    ALIVE(d);
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x8f + d->index;
    pci->pciDeviceId = 0x233010de;
    sprintf(pci->busId, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}
int nvmlDeviceGetAddressingMode(device_t *d, addressing_t *mode) {
    if (mode->version != (sizeof *mode | 1 << 24)) return INVALID_ARGUMENT;
    if (!d->has_mig) return NOT_SUPPORTED;
    mode->value = 1;
    return SUCCESS;
}
int nvmlDeviceSetComputeMode(device_t *d, int mode) { ALIVE(d); d->compute_mode = mode; return SUCCESS; }

int nvmlDeviceGetMigMode(device_t *d, unsigned *current, unsigned *later) {
    ALIVE(d);
    if (!d->has_mig) return NOT_SUPPORTED;
    *current = *later = d->mig_mode;
    return SUCCESS;
}
int nvmlDeviceSetMigMode(device_t *d, unsigned mode, int *activation) {
    ALIVE(d);
    if (!d->has_mig) return NOT_SUPPORTED;
    for (int i = 0; i < INSTANCES; i++)
        if (d->instances[i].is_used) { *activation = IN_USE; return SUCCESS; }
    d->mig_mode = mode;
    *activation = SUCCESS;
    return SUCCESS;
}
static int by_id(unsigned id) {
    for (int i = 0; i < PROFILES; i++) if (profiles[i].id == id) return i;
    return -1;
}
int nvmlDeviceGetGpuInstanceProfileInfoV(device_t *d, unsigned number, profile_info_t *info) {
    if (info->version != (sizeof *info | 2 << 24)) return INVALID_ARGUMENT;
    for (int i = 0; i < PROFILES; i++) {
        if (profiles[i].number != number) continue;
        info->id = profiles[i].id;
        info->sliceCount = profiles[i].slices;
        info->instanceCount = profiles[i].count;
        info->multiprocessorCount = profiles[i].sm;
        info->copyEngineCount = profiles[i].ce;
        info->decoderCount = profiles[i].dec;
        info->encoderCount = 0;
        info->jpegCount = profiles[i].jpg;
        info->ofaCount = profiles[i].ofa;
        info->memorySizeMB = profiles[i].memory;
        strcpy(info->name, profiles[i].name);
        return d->has_mig ? SUCCESS : NOT_SUPPORTED;
    }
    return NOT_SUPPORTED;
}
int nvmlDeviceGetGpuInstancePossiblePlacements_v2(device_t *d, unsigned id, placement_t *places, unsigned *count) {
    int profile = by_id(id);
    if (profile < 0 || !d->has_mig) return NOT_SUPPORTED;
    *count = profiles[profile].count;
    for (int i = 0; i < profiles[profile].count; i++) {
        places[i].start = profiles[profile].starts[i];
        places[i].size = profiles[profile].size;
    }
    return SUCCESS;
}
int nvmlDeviceGetGpuInstances(device_t *d, unsigned id, instance_t **found, unsigned *count) {
    ALIVE(d);
    *count = 0;
    for (int i = 0; i < INSTANCES; i++)
        if (d->instances[i].is_used && d->instances[i].profile == id) found[(*count)++] = &d->instances[i];
    return SUCCESS;
}
int nvmlGpuInstanceGetInfo(instance_t *instance, instance_info_t *info) {
    info->device = instance->device;
    info->id = instance->id;
    info->profileId = instance->profile;
    info->placement = instance->placement;
    return SUCCESS;
}
int nvmlDeviceCreateGpuInstanceWithPlacement(device_t *d, unsigned id, const placement_t *place, instance_t **made) {
    ALIVE(d);
    if (!d->mig_mode || by_id(id) < 0) return NOT_SUPPORTED;
    for (int i = 0; i < INSTANCES; i++) {
        const placement_t *other = &d->instances[i].placement;
        if (d->instances[i].is_used && place->start < other->start + other->size && other->start < place->start + place->size)
            return INSUFFICIENT_RESOURCES;
    }
    for (int i = 0; i < INSTANCES; i++) {
        if (d->instances[i].is_used) continue;
        d->instances[i] = (instance_t){.is_used = 1, .device = d, .id = i + 1, .profile = id, .placement = *place};
        *made = &d->instances[i];
        return SUCCESS;
    }
    return INSUFFICIENT_RESOURCES;
}
int nvmlGpuInstanceDestroy(instance_t *instance) {
    if (instance->has_compute) return IN_USE;
    instance->is_used = 0;
    return SUCCESS;
}
int nvmlGpuInstanceGetComputeInstanceProfileInfo(instance_t *instance, unsigned number, unsigned engine,
                                                 compute_profile_info_t *info) {
    static const unsigned slices[] = {1, 2, 3, 4, 7, 8, 6};
    if (number > 6 || engine != 0 || slices[number] != profiles[by_id(instance->profile)].slices) return NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    info->id = 40 + number;
    info->sliceCount = slices[number];
    return SUCCESS;
}
int nvmlGpuInstanceCreateComputeInstance(instance_t *instance, unsigned id, void **made) {
    if (instance->has_compute || id < 40) return INSUFFICIENT_RESOURCES;
    instance->has_compute = 1;
    *made = &instance->compute_handle;
    return SUCCESS;
}
int nvmlGpuInstanceGetComputeInstances(instance_t *instance, unsigned id, void **found, unsigned *count) {
    *count = instance->has_compute && id >= 40;
    if (*count) found[0] = &instance->compute_handle;
    return SUCCESS;
}
static instance_t *by_compute_handle(void *handle) {
    for (int d = 0; d < DEVICES; d++)
        for (int i = 0; i < INSTANCES; i++)
            if ((void *)&devices[d].instances[i].compute_handle == handle) return &devices[d].instances[i];
    return NULL;
}
int nvmlComputeInstanceGetInfo_v2(void *handle, compute_info_t *info) {
    instance_t *instance = by_compute_handle(handle);
    memset(info, 0, sizeof *info);
    info->device = instance->device;
    info->instance = instance;
    return SUCCESS;
}
int nvmlComputeInstanceDestroy(void *handle) { by_compute_handle(handle)->has_compute = 0; return SUCCESS; }
int nvmlDeviceGetMaxMigDeviceCount(device_t *d, unsigned *count) { (void)d; *count = INSTANCES; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(device_t *d, unsigned index, void **handle) {
    if (!d->instances[index].is_used || !d->instances[index].has_compute) return NOT_FOUND;
    *handle = &d->instances[index].mig_handle;
    return SUCCESS;
}
int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) { *id = by_mig_handle(handle)->id; return SUCCESS; }
int nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id) { (void)handle; *id = 0; return SUCCESS; }

int nvmlEventSetCreate(void **set) { *set = &event_set; return SUCCESS; }
int nvmlEventSetFree(void *set) { return set == &event_set ? SUCCESS : INVALID_ARGUMENT; }
int nvmlDeviceRegisterEvents(device_t *d, unsigned long long types, void *set) {
    if (set != &event_set || types != 0x8) return INVALID_ARGUMENT;
    if (!d->has_mig) return NOT_SUPPORTED;
    d->has_events = 1;
    return SUCCESS;
}
int nvmlEventSetWait_v2(void *set, event_t *event, unsigned milliseconds) {
    if (set != &event_set) return INVALID_ARGUMENT;
    for (unsigned waited = 0; waited <= milliseconds; waited += 5) {
        if (pending.device >= 0) {
            *event = (event_t){.device = &devices[pending.device], .type = 0x8, .data = pending.xid};
            pending.device = -1;
            return SUCCESS;
        }
        usleep(5000);
    }
    return TIMEOUT;
}
