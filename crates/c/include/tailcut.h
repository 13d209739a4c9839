#ifndef TAILCUT_H
#define TAILCUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * How a function ended.
 */
typedef enum tailcut_code {
  /**
   * As it should.
   */
  TAILCUT_CODE_OK = 0,
  /**
   * A pointer that may not be null is, a text is not UTF-8, an address is not HOST:PORT, or a
   * file of keys or of a policy cannot be read or holds none.
   */
  TAILCUT_CODE_INVALID_ARGUMENT = 1,
  /**
   * No socket is to be had at the address.
   */
  TAILCUT_CODE_OPEN = 2,
  /**
   * The call was not made: too long, too many outstanding, or a timeout out of range.
   */
  TAILCUT_CODE_NOT_CALLED = 3,
  /**
   * The deadline passed. The request may or may not have run.
   */
  TAILCUT_CODE_DEADLINE = 4,
  /**
   * Nobody answers there.
   */
  TAILCUT_CODE_UNREACHABLE = 5,
  /**
   * The server or the router refused the request; `tailcut_last_error` has the reason.
   */
  TAILCUT_CODE_REFUSED = 6,
  /**
   * The server's application refused it; `tailcut_last_rejection` has its code.
   */
  TAILCUT_CODE_REJECTED = 7,
  /**
   * The reply is too long.
   */
  TAILCUT_CODE_TOO_LARGE = 8,
  /**
   * The request to be answered is gone: cancelled, expired or answered before.
   */
  TAILCUT_CODE_GONE = 9,
  /**
   * The socket has become useless.
   */
  TAILCUT_CODE_IO = 10,
  /**
   * A fault of tailcut's own.
   */
  TAILCUT_CODE_INTERNAL = 11,
} tailcut_code;

/**
 * A call that has been started.
 */
typedef struct tailcut_call_handle tailcut_call_handle;

/**
 * A client of one server or router. It belongs to one thread at a time, with all its calls and
 * replies; make one for each thread. It works only while one of its functions runs.
 */
typedef struct tailcut_client tailcut_client;

/**
 * A reply.
 */
typedef struct tailcut_reply tailcut_reply;

/**
 * A request: in a handler's hands until the handler returns, or kept for later.
 */
typedef struct tailcut_request tailcut_request;

/**
 * A server on one port.
 */
typedef struct tailcut_server tailcut_server;

/**
 * How a client is opened; all zero is the default.
 */
typedef struct tailcut_client_options {
  /**
   * How long a call waits for its reply where it does not say otherwise, ns; 0: a second. At
   * most 60 s.
   */
  uint64_t timeout_ns;
  /**
   * Poll instead of sleeping: seven times less latency at the price of a core.
   */
  bool busy_poll;
  /**
   * The file of the client's keys, where the service is sealed, which is read again when it
   * changes; null: it is not. The text is not used after the client is open.
   */
  const char *seal_file;
} tailcut_client_options;

/**
 * How a call is made; all zero is the default.
 */
typedef struct tailcut_call_settings {
  /**
   * How long it waits for its reply, ns; 0: as the client says.
   */
  uint64_t timeout_ns;
  /**
   * The request may run more than once: routers may clone it and send it again.
   */
  bool idempotent;
} tailcut_call_settings;

/**
 * How a server is opened; all zero is the default.
 */
typedef struct tailcut_server_options {
  /**
   * Poll instead of sleeping: seven times less latency at the price of a core.
   */
  bool busy_poll;
  /**
   * The file of the servers' keys, which seals the service, and is read again when it changes;
   * null: the service is open. The text is not used after the server is open.
   */
  const char *seal_file;
  /**
   * The file of a policy that says which clients may call what, by the numbers of their keys,
   * likewise; null: all may call everything.
   */
  const char *access_file;
  /**
   * When clients of an open service must show by a cookie that they receive at their addresses:
   * `never`, `under-load` or `always`; null: never.
   */
  const char *cookies;
} tailcut_server_options;

/**
 * Answers a request, in microseconds, or keeps it by `tailcut_request_keep`. One that it does
 * neither with is refused. It must not unwind into the library: no exception of C++ may leave it.
 */
typedef void (*tailcut_handler)(struct tailcut_request *request, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Opens a client of the server or router at `target`, HOST:PORT. `options` may be null. Nothing is
 * sent yet.
 *
 * Requires:
 *
 * The texts end by a zero, and `client` can be written.
 */
enum tailcut_code tailcut_client_open(const char *target,
                                      const struct tailcut_client_options *options,
                                      struct tailcut_client **client);

/**
 * Closes a client, as soon as its calls and replies are freed too. Null is allowed.
 *
 * Requires:
 *
 * It came from `tailcut_client_open` and is not used again.
 */
void tailcut_client_free(struct tailcut_client *client);

/**
 * Calls and waits for the reply, which is to be freed. `settings` may be null.
 *
 * Requires:
 *
 * The client is alive, `request` has `len` bytes, and `reply` can be written.
 */
enum tailcut_code tailcut_call(const struct tailcut_client *client,
                               const uint8_t *request,
                               size_t len,
                               const struct tailcut_call_settings *settings,
                               struct tailcut_reply **reply);

/**
 * Starts a call and returns at once, so that many can be outstanding. The call is to be waited
 * for, or freed.
 *
 * Requires:
 *
 * As `tailcut_call`.
 */
enum tailcut_code tailcut_start(const struct tailcut_client *client,
                                const uint8_t *request,
                                size_t len,
                                const struct tailcut_call_settings *settings,
                                struct tailcut_call_handle **call);

/**
 * Looks at the socket once, and says whether the call has ended. Never waits.
 *
 * Requires:
 *
 * The call is alive, and `is_done` can be written.
 */
enum tailcut_code tailcut_call_poll(const struct tailcut_call_handle *call, bool *is_done);

/**
 * Waits for a call's reply, which is to be freed. The call is freed, whatever comes of it.
 *
 * Requires:
 *
 * The call is alive and not used again, and `reply` can be written.
 */
enum tailcut_code tailcut_call_wait(struct tailcut_call_handle *call, struct tailcut_reply **reply);

/**
 * Cancels a call, or gives its result up. Null is allowed.
 *
 * Requires:
 *
 * It came from `tailcut_start`, has not been waited for and is not used again.
 */
void tailcut_call_free(struct tailcut_call_handle *call);

/**
 * A reply's bytes, which are there until it is freed; their number goes to `len`.
 *
 * Requires:
 *
 * The reply is alive, and `len` can be written.
 */
const uint8_t *tailcut_reply_bytes(const struct tailcut_reply *reply, size_t *len);

/**
 * Frees a reply. Null is allowed.
 *
 * Requires:
 *
 * It is not used again.
 */
void tailcut_reply_free(struct tailcut_reply *reply);

/**
 * The text of this thread's last error, up to its next one; empty before the first.
 */
const char *tailcut_last_error(void);

/**
 * The number by which a server's application refused this thread's last call that ended by
 * `TAILCUT_CODE_REJECTED`.
 */
uint32_t tailcut_last_rejection(void);

/**
 * Opens a server at `address`, HOST:PORT; port 0 takes a free one. `options` may be null.
 *
 * Requires:
 *
 * The texts end by a zero, and `server` can be written.
 */
enum tailcut_code tailcut_server_open(const char *address,
                                      const struct tailcut_server_options *options,
                                      struct tailcut_server **server);

/**
 * The server's port; 0 for null. From any thread.
 *
 * Requires:
 *
 * The server is alive.
 */
uint16_t tailcut_server_port(const struct tailcut_server *server);

/**
 * Answers requests by `handler` on this thread, until another one calls `tailcut_server_stop`.
 *
 * Requires:
 *
 * The server is alive, and no other thread runs it; the handler is what its type says.
 */
enum tailcut_code tailcut_server_run(struct tailcut_server *server,
                                     tailcut_handler handler,
                                     void *context);

/**
 * Receives what has come, answers it by `handler`, and sends the replies; never waits. For a
 * program with a loop of its own.
 *
 * Requires:
 *
 * As `tailcut_server_run`.
 */
enum tailcut_code tailcut_server_turn(struct tailcut_server *server,
                                      tailcut_handler handler,
                                      void *context);

/**
 * Has `tailcut_server_run` return, once what runs is answered. From any thread.
 *
 * Requires:
 *
 * The server is alive.
 */
void tailcut_server_stop(const struct tailcut_server *server);

/**
 * Closes a server that does not run. Null is allowed.
 *
 * Requires:
 *
 * It is not used again.
 */
void tailcut_server_free(struct tailcut_server *server);

/**
 * A request's bytes, which are there until it is answered or kept; their number goes to `len`.
 *
 * Requires:
 *
 * The request is alive, and `len` can be written.
 */
const uint8_t *tailcut_request_bytes(const struct tailcut_request *request, size_t *len);

/**
 * How long the client will still wait, ns; 0 when it does not, or the request is answered.
 *
 * Requires:
 *
 * The request is alive.
 */
uint64_t tailcut_request_time_left_ns(const struct tailcut_request *request);

/**
 * Whether the request may run more than once, here or elsewhere.
 *
 * Requires:
 *
 * The request is alive.
 */
bool tailcut_request_is_idempotent(const struct tailcut_request *request);

/**
 * The number of the client's keys, which is who calls, also behind a router; -1 where the service
 * is open, or the request is answered.
 *
 * Requires:
 *
 * The request is alive.
 */
int64_t tailcut_request_identity(const struct tailcut_request *request);

/**
 * Keeps a handler's request for later: the handler may return, and the answer may come from any
 * thread. What goes to `kept` is to be answered, or freed.
 *
 * Requires:
 *
 * The request is alive, and `kept` can be written.
 */
enum tailcut_code tailcut_request_keep(struct tailcut_request *request,
                                       struct tailcut_request **kept);

/**
 * Answers a request. One that was kept is still to be freed.
 *
 * Requires:
 *
 * The request is alive, and `reply` has `len` bytes.
 */
enum tailcut_code tailcut_request_reply(struct tailcut_request *request,
                                        const uint8_t *reply,
                                        size_t len);

/**
 * Refuses a request with a number and a text for the caller, of which 1024 bytes arrive.
 *
 * Requires:
 *
 * The request is alive, and the text ends by a zero.
 */
enum tailcut_code tailcut_request_reject(struct tailcut_request *request,
                                         uint32_t code,
                                         const char *text);

/**
 * Frees a request that was kept; one that is not answered is refused. Null is allowed.
 *
 * Requires:
 *
 * It came from `tailcut_request_keep` and is not used again.
 */
void tailcut_request_free(struct tailcut_request *request);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TAILCUT_H */

/*
 * Generated by scripts/c-header from
 * client.rs: a57e05dbf0054637cc6e24a8ce35dc4ba77d2f29
 * error.rs: 893cfd2d30f2433c444cc31c9db2eb00436fc171
 * server.rs: 217ca550c5dcfa93a4222370fcb1fe971451a2aa
 */
