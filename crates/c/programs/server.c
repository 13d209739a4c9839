/* A server that answers in capitals. It refuses what is empty, keeps "later" for after the handler,
 * says who asks "who", and ends when it is asked to "stop". It is sealed by the keys in the file
 * that SEAL names in the environment, and lets those call whom the policy in that of ACCESS allows. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tailcut.h"

struct state {
    tailcut_server *server;
    tailcut_request *kept;
};

static void handle(tailcut_request *request, void *context) {
    struct state *state = context;
    uint8_t reply[2048];
    size_t len;
    const uint8_t *bytes = tailcut_request_bytes(request, &len);
    if (len == 0 || len > sizeof reply) {
        tailcut_request_reject(request, 42, "from 1 to 2048 bytes, please");
        return;
    }
    if (len == 5 && memcmp(bytes, "later", 5) == 0 && state->kept == NULL) {
        tailcut_request_keep(request, &state->kept);
        return;
    }
    if (len == 4 && memcmp(bytes, "stop", 4) == 0) {
        tailcut_server_stop(state->server);
    }
    if (len == 3 && memcmp(bytes, "who", 3) == 0) {
        int written = snprintf((char *)reply, sizeof reply, "%lld",
                               (long long)tailcut_request_identity(request));
        tailcut_request_reply(request, reply, (size_t)written);
        return;
    }
    if (len == 9 && memcmp(bytes, "may-again", 9) == 0) {
        const char *again = tailcut_request_is_idempotent(request) ? "yes" : "no";
        tailcut_request_reply(request, (const uint8_t *)again, strlen(again));
        return;
    }
    for (size_t i = 0; i < len; i++) {
        reply[i] = (uint8_t)toupper(bytes[i]);
    }
    tailcut_request_reply(request, reply, len);
    if (state->kept != NULL) {
        tailcut_request_reply(state->kept, (const uint8_t *)"now", 3);
        tailcut_request_free(state->kept);
        state->kept = NULL;
    }
}

int main(void) {
    struct state state = {NULL, NULL};
    tailcut_server_options options = {.seal_file = getenv("SEAL"),
                                      .access_file = getenv("ACCESS")};
    if (tailcut_server_open("127.0.0.1:0", &options, &state.server) != TAILCUT_CODE_OK) {
        fprintf(stderr, "%s\n", tailcut_last_error());
        return 1;
    }
    printf("%u\n", tailcut_server_port(state.server));
    fflush(stdout);
    tailcut_code code = tailcut_server_run(state.server, handle, &state);
    tailcut_request_free(state.kept);
    tailcut_server_free(state.server);
    return code == TAILCUT_CODE_OK ? 0 : 1;
}
