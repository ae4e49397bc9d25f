/* A libnvidia-ml that makes GPUs up, and is strict about what it is given: a caller that does not
   begin, that asks for a GPU that is not there, or hands over a handle that it was not given, is
   told so in a file and ends there. The use of each GPU is read from a file, anew each time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct device { unsigned magic; unsigned index; };
struct utilization { unsigned gpu, memory; };

static struct device devices[2] = {{0xD5A7, 0}, {0xD5A7, 1}};
static int begun = 0;

static void wrong(const char *what) {
    FILE *file = fopen(getenv("FAKE_NVML_WRONG"), "a");
    if (file) { fprintf(file, "%s\n", what); fclose(file); }
    _exit(99);
}

int nvmlInit_v2(void) {
    if (getenv("FAKE_NVML_NO_DRIVER")) return 9;
    begun = 1;
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    if (!begun) wrong("not begun");
    if (!count || (unsigned long)count % sizeof *count) wrong("a bad pointer");
    *count = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **found) {
    if (!begun) wrong("not begun");
    if (!found || (unsigned long)found % sizeof *found) wrong("a bad pointer");
    if (index >= 2) return 2;
    *found = &devices[index];
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *name, struct device **found) {
    if (!begun) wrong("not begun");
    if (strcmp(name, "GPU-11111111-aaaa")) return 6;
    *found = &devices[1];
    return 0;
}

int nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *rates) {
    if (device != &devices[0] && device != &devices[1]) wrong("a handle that was never given");
    if (!rates || (unsigned long)rates % sizeof(unsigned)) wrong("a bad pointer");
    if (getenv("FAKE_NVML_HANGS")) pause();
    unsigned use[2] = {0, 0};
    FILE *file = fopen(getenv("FAKE_NVML_USE"), "r");
    if (file) { if (fscanf(file, "%u %u", &use[0], &use[1]) < 0) use[0] = 0; fclose(file); }
    rates->gpu = use[device->index];
    rates->memory = 0xFFFFFFFF;  /* of no concern to anybody here */
    return 0;
}
