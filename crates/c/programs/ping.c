/* The median round trip of a call of 32 bytes, polling, in nanoseconds.
 *
 *     ping HOST:PORT NANOSECONDS */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tailcut.h"

enum { ROUND_TRIPS = 1 << 20 };

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    static uint64_t round_trips[ROUND_TRIPS];
    uint8_t request[32] = {1};
    size_t count = 0;
    tailcut_client *client;
    tailcut_client_options options = {.busy_poll = true};
    if (argc != 3 || tailcut_client_open(argv[1], &options, &client) != TAILCUT_CODE_OK) {
        fprintf(stderr, "ping HOST:PORT NANOSECONDS: %s\n", tailcut_last_error());
        return 1;
    }
    uint64_t now = now_ns(), end = now + strtoull(argv[2], NULL, 10);
    while (now < end && count < ROUND_TRIPS) {
        tailcut_reply *reply;
        if (tailcut_call(client, request, sizeof request, NULL, &reply) != TAILCUT_CODE_OK) {
            fprintf(stderr, "%s\n", tailcut_last_error());
            return 1;
        }
        tailcut_reply_free(reply);
        uint64_t after = now_ns();
        round_trips[count++] = after - now;
        now = after;
    }
    tailcut_client_free(client);
    qsort(round_trips, count, sizeof *round_trips, compare);
    printf("%llu\n", (unsigned long long)round_trips[count / 2]);
    return 0;
}
