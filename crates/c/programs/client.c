/* A client that sends its words and prints the replies: one after another, and then all at once.
 *
 *     client HOST:PORT WORD...
 *
 * It is sealed by the keys in the file that SEAL names in the environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tailcut.h"

static void print(const char *word, tailcut_reply *reply) {
    size_t len;
    const uint8_t *bytes = tailcut_reply_bytes(reply, &len);
    printf("%s -> %.*s\n", word, (int)len, (const char *)bytes);
    tailcut_reply_free(reply);
}

static void fail(const char *word, tailcut_code code) {
    printf("%s: code %d", word, (int)code);
    if (code == TAILCUT_CODE_REJECTED) {
        printf(", number %u", (unsigned)tailcut_last_rejection());
    }
    printf(": %s\n", tailcut_last_error());
}

int main(int argc, char **argv) {
    tailcut_client *client;
    tailcut_client_options options = {.timeout_ns = 30000000000u, .seal_file = getenv("SEAL")};
    tailcut_call_settings settings = {.idempotent = true};
    tailcut_call_handle *calls[16];
    if (argc < 2 || argc > 18 ||
        tailcut_client_open(argv[1], &options, &client) != TAILCUT_CODE_OK) {
        fprintf(stderr, "client HOST:PORT WORD..., 16 at most: %s\n", tailcut_last_error());
        return 1;
    }
    for (int i = 2; i < argc; i++) {
        tailcut_reply *reply;
        tailcut_code code = tailcut_call(client, (const uint8_t *)argv[i], strlen(argv[i]),
                                         &settings, &reply);
        if (code == TAILCUT_CODE_OK) {
            print(argv[i], reply);
        } else {
            fail(argv[i], code);
        }
    }
    for (int i = 2; i < argc; i++) {
        if (tailcut_start(client, (const uint8_t *)argv[i], strlen(argv[i]), NULL, &calls[i - 2]) !=
            TAILCUT_CODE_OK) {
            fail(argv[i], TAILCUT_CODE_NOT_CALLED);
            return 1;
        }
    }
    /* What is outstanding keeps the client. */
    tailcut_client_free(client);
    for (int i = 2; i < argc; i++) {
        bool is_done = false;
        while (!is_done) {
            if (tailcut_call_poll(calls[i - 2], &is_done) != TAILCUT_CODE_OK) {
                return 1;
            }
        }
        tailcut_reply *reply;
        tailcut_code code = tailcut_call_wait(calls[i - 2], &reply);
        if (code == TAILCUT_CODE_OK) {
            print(argv[i], reply);
        } else {
            fail(argv[i], code);
        }
    }
    return 0;
}
