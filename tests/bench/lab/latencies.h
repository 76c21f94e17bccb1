/* Latencies in microseconds, all of them kept, and their percentiles. Needs wire.h. */

typedef struct {
    uint32_t *us;
    size_t count, room;
} Latencies;

static void note(Latencies *latencies, int64_t ns) {
    if (latencies->count == latencies->room) {
        latencies->room = latencies->room * 2 + 4096;
        if (!(latencies->us = realloc(latencies->us, latencies->room * sizeof(uint32_t)))) stop("no memory");
    }
    latencies->us[latencies->count++] = ns < 0 ? 0 : ns / 1000;
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_latencies(const char *name, Latencies *latencies) {
    static const struct {
        const char *name;
        double share;
    } points[] = {{"p50", .5}, {"p90", .9}, {"p99", .99}, {"max", 1}};
    if (latencies->count) qsort(latencies->us, latencies->count, sizeof(uint32_t), ascending);
    printf(",\"%s\":{", name);
    for (int i = 0; i < 4; i++) {
        size_t at = latencies->count * points[i].share;
        if (at && at == latencies->count) at--;
        printf("%s\"%s\":", i ? "," : "", points[i].name);
        latencies->count ? printf("%.3f", latencies->us[at] / 1000.) : printf("null");
    }
    printf("}");
}
